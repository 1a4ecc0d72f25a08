"""Stores parts of imports once, with a record of each in the same transaction (G2)."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from broker.core.log.appending import Batches, append_to_shards
from broker.db.driver import statements
from broker.db.driver.database import Connection
from broker.db.driver.hot_connection import NOTHING_CHANGED, HotConnection
from broker.db.driver.statements import BEGIN, COMMIT

_RECORD_PART = statements.hot("record_part")
_READ_PART = statements.hot("read_part")
_DELETE_OLD = "DELETE FROM imported_parts WHERE imported_at < %(before)s"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPart:
    """`digest`: of what was sent."""

    topic_id: int
    import_id: str
    number: int
    digest: bytes
    message_count: int


async def append_part(
    connection: HotConnection, *, part: StoredPart, batches: Batches, now: datetime
) -> StoredPart | None:
    """Store a part; or, if it was stored before, the part as it was then, and nothing is changed.

    Raises what append_to_shards does; an OperationalError of psycopg means that the outcome is unknown, and that
    the part may be sent again.
    """
    named = {"topic_id": part.topic_id, "import_id": part.import_id, "part": part.number}
    noted = {"digest": part.digest, "message_count": part.message_count, "now": now}
    try:
        _, recorded = await connection.run((BEGIN, {}), (_RECORD_PART, named | noted))
        if recorded:
            await append_to_shards(connection, batches=batches, now=now)
            await connection.run((COMMIT, {}))
            return None
        [before] = await connection.run((_READ_PART, named))
        await connection.run(*NOTHING_CHANGED)
    except BaseException:
        await connection.close()  # its transaction is open
        raise
    digest, count = (before[0].digest, before[0].message_count) if before else (part.digest, part.message_count)
    return StoredPart(
        topic_id=part.topic_id, import_id=part.import_id, number=part.number, digest=digest, message_count=count
    )


async def delete_old_parts(connection: Connection, *, now: datetime, days: int) -> None:
    """Forget what was imported so long ago: it would be stored again."""
    await connection.execute(_DELETE_OLD, {"before": now - timedelta(days=days)})
