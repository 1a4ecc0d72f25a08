"""Checks that a restored database is consistent, so that brokers may serve from it.

Tables that belong together must be of the same moment, and no counter may be behind the values that were given
out.  A backup of one moment (pg_dump, a base backup with its WAL) satisfies this by itself.  It is violated by
tables that were dumped one by one, by an incomplete restore, and by rows that were inserted by hand.  The check
changes nothing and reads everything in one snapshot, so brokers may run meanwhile.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg import sql

from broker.db.driver.connection_parameters import connection_parameters
from broker.db.schema.after_restore import NUMBERED, read_known_time
from broker.db.schema.schema_state import saying_why
from broker.model.message_id import FIRST_ID_SEQ

# Problems: the name of each, and its count.
_FLAWS = {
    # A shard's newest batch is the last one by publish time, because publish times and sequences never decrease.
    "messages past the head of their shard": """
        SELECT count(*) FROM shards AS s
        CROSS JOIN LATERAL (
            SELECT last_seq, publish_time FROM message_batches WHERE shard_id = s.shard_id
            ORDER BY publish_time DESC, last_seq DESC LIMIT 1
        ) AS newest
        WHERE newest.last_seq > s.head OR newest.publish_time > s.last_publish_time
    """,
    "scheduled messages past the last id of their shard": """
        SELECT count(*) FROM scheduled_messages AS m JOIN shards AS s USING (shard_id)
        WHERE m.id_seq > s.last_id_seq
    """,
    "cursors past the head of their shard": """
        SELECT count(*) FROM cursors AS c JOIN shards AS s USING (shard_id)
        WHERE c.next_seq > s.head + 1 AND c.next_seq < %(ids)s
    """,
    "messages out that their shard does not have": """
        SELECT count(*) FROM delivery_attempts AS a JOIN shards AS s USING (shard_id)
        WHERE upper(a.seqs) - 1 > s.head
    """,
    "subscriptions without a cursor in a shard of their topic": """
        SELECT count(*) FROM subscriptions AS b JOIN shards AS s ON s.topic_id = b.topic_id AND s.open
        WHERE NOT b.detached AND NOT EXISTS (
            SELECT FROM cursors WHERE subscription_id = b.subscription_id AND shard_id = s.shard_id
        )
    """,
    "topics without a shard": """
        SELECT count(*) FROM topics AS t WHERE NOT EXISTS (SELECT FROM shards WHERE topic_id = t.topic_id)
    """,
}
_COLUMNS = """
    SELECT table_name, column_name, pg_get_serial_sequence(format('%%I.%%I', table_schema, table_name), column_name)
    FROM information_schema.columns
    WHERE table_schema = current_schema() AND is_identity = 'YES' AND table_name = ANY(%s)
    ORDER BY table_name
"""
_GIVEN_AGAIN = """
    SELECT count(*) FROM {table} WHERE {column} > (SELECT last_value - (NOT is_called)::int FROM {counter})
"""
_OUT = "SELECT count(*), count(*) FILTER (WHERE next_delivery_at < clock_timestamp()) FROM delivery_attempts"
_PROCESSES = "SELECT count(*) FROM processes WHERE seen_at > clock_timestamp() - interval '10 seconds'"


@dataclass(frozen=True, slots=True)
class BackupState:
    """`flaws`: what must not be, with how many there are.  `known_until`: the newest time that the database knows.
    Of `out`, responses that readers have yet to acknowledge, so many are `past` their deadline.
    """

    flaws: dict[str, int]
    known_until: datetime | None
    now: datetime
    out: int
    past: int
    processes: int


def inspect_backup(database_url: str, *, schema: str) -> BackupState:
    """Raises DatabaseUnreachable."""
    parameters = connection_parameters(database_url, schema=schema)
    with saying_why("The database cannot be used"), psycopg.connect(**parameters) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        flaws = {name: _number(connection, query) for name, query in _FLAWS.items()} | dict(_counters(connection))
        [(known_until, now)] = read_known_time(connection)
        [(out, past)] = connection.execute(_OUT)
        processes = _number(connection, _PROCESSES)
        return BackupState(
            {name: count for name, count in flaws.items() if count}, known_until, now, out, past, processes
        )


def _counters(connection: psycopg.Connection[Any]) -> Iterator[tuple[str, int]]:
    """Numbers that were given out already, and would be again: of topics, subscriptions, shards and so on."""
    for table, column, counter in connection.execute(_COLUMNS, [list(NUMBERED)]).fetchall():
        query = sql.SQL(_GIVEN_AGAIN).format(
            table=sql.Identifier(table), column=sql.Identifier(column), counter=sql.SQL(counter)
        )
        yield f"{table} whose numbers would be given again", _number(connection, query)


def _number(connection: psycopg.Connection[Any], query: str | sql.Composed) -> int:
    [(count,)] = connection.execute(query, {"ids": FIRST_ID_SEQ})
    return int(count)
