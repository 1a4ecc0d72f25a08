"""Lists messages of applications' transactions that could not be published, and publishes them again."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from psycopg.rows import class_row

from broker.features.outbox.application_functions import session_in

_MOST = 1_000  # that are listed
_LIST = """
    SELECT n, refused_at, topic, ordering_key, octet_length(data) AS size, reason
    FROM refused_messages ORDER BY n LIMIT %s
"""
# For the topic of that name, whichever it is now.  `wakes`: once, of all.
_RETURN_TO_OUTBOX = """
    WITH again AS (
        DELETE FROM refused_messages AS r USING topics AS t WHERE t.name = r.topic RETURNING r.*, t.topic_id
    )
    INSERT INTO outbox (xid, role, written_at, wakes, name, topic_id, size, ordering_key, attributes, data)
    SELECT pg_current_xact_id()::text::bigint, role, written_at, row_number() OVER (ORDER BY n) = 1,
           topic, topic_id,
           octet_length(data) + coalesce(octet_length(attributes::text), 0), ordering_key, attributes, data
    FROM again ORDER BY n
"""


_READ_STATE = """
    SELECT count(*)::int, coalesce(extract(epoch FROM clock_timestamp() - min(written_at)), 0)::float8,
           (SELECT count(*)::int FROM refused_messages)
    FROM (SELECT written_at FROM outbox ORDER BY n LIMIT 10000) AS first
"""


@dataclass(frozen=True, slots=True)
class OutboxState:
    """`rows` of `outbox` are committed, the first for so long; so many messages are `refused`."""

    rows: int
    oldest_seconds: float
    refused: int


@dataclass(frozen=True, slots=True)
class Refused:
    """`n` is what publish returned; `reason`: a canonical code and a sentence."""

    n: int
    refused_at: datetime
    topic: str
    ordering_key: str | None
    size: int
    reason: str


def list_refused(database_url: str, *, schema: str) -> Sequence[Refused]:
    """The first of them, in the order of their calls.  Raises CannotGrant."""
    with (
        session_in(database_url, schema) as connection,
        connection.cursor(row_factory=class_row(Refused)) as cursor,
    ):
        return cursor.execute(_LIST, [_MOST]).fetchall()


def inspect_outbox(database_url: str, *, schema: str) -> OutboxState:
    """Returns the state of the outbox.  Raises CannotGrant."""
    with session_in(database_url, schema) as connection:
        row = connection.execute(_READ_STATE).fetchone()
        assert row is not None
        return OutboxState(*row)


def return_to_outbox(database_url: str, *, schema: str) -> tuple[int, int]:
    """Stage them again.  Returns how many those are, and how many have no topic.  Raises CannotGrant."""
    with session_in(database_url, schema) as connection:
        connection.execute(
            "SELECT pg_current_xact_id()"
        )  # before any number is taken (features/outbox/find_outbox_rows.sql)
        outbox = connection.execute(_RETURN_TO_OUTBOX).rowcount
        [left] = connection.execute("SELECT count(*) FROM refused_messages").fetchone() or (0,)
        return outbox, left
