"""Prepares a restored database: it continues with ids that were never given out.

The database has an earlier state, and the messages published since are lost; but clients may remember their ids, to
recognize repeats.  So each shard skips as many sequences as could have been given out: one for each microsecond
since the newest time in the database, and one second more.  A database that is restored twice to the same time
skips more the second time, to cover what was published in between.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg import sql

from broker.db.driver.connection_parameters import connection_parameters
from broker.db.schema.migration_lock import lock_migrations
from broker.db.schema.migration_waits import APPLICATION_NAME
from broker.db.schema.running_brokers import refuse_brokers
from broker.db.schema.schema_state import DatabaseUnreachable
from broker.model.message_id import FIRST_ID_SEQ, SEQUENCES_PER_SHARD
from broker.observability.log import reason

_MARGIN = 1_000_000
_RESOURCES_A_SECOND = 100  # that may have been created since, at most
NUMBERED = ("topics", "subscriptions", "snapshots", "shards", "payload_schemas", "payload_schema_revisions")

_KNOWN_TIME = """
    SELECT max(at), clock_timestamp()
    FROM (
        SELECT max(seen_at) FROM processes
        UNION ALL
        SELECT max(last_publish_time) FROM shards
        UNION ALL
        SELECT max(last_active_at) FROM subscriptions
    ) AS known (at)
"""
# Frozen topics stay frozen: `frozen_at` is the head.
_LEAVE_OUT = """
    UPDATE shards SET head = head + %(gap)s, frozen_at = frozen_at + %(gap)s, last_id_seq = last_id_seq + %(gap)s
    WHERE head + %(gap)s < %(end)s AND last_id_seq + %(gap)s < %(last)s
"""
_COLUMNS = """
    SELECT table_name, column_name FROM information_schema.columns
    WHERE table_schema = current_schema() AND is_identity = 'YES' AND table_name = ANY(%s)
"""


class IdsUsedUp(Exception):
    """A shard has no room for such a gap; nothing has changed."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Sequences that each of so many shards has left out."""

    sequences: int
    shards: int


def go_on_after_restore(database_url: str, *, schema: str) -> Gap:
    """Continues after a restore, in one transaction.

    Raises BrokersAtWork, MigrationUnderWay, IdsUsedUp, DatabaseUnreachable.
    """
    try:
        return _go_on(database_url, schema)
    except psycopg.OperationalError as error:
        raise DatabaseUnreachable(f"the database cannot be used: {reason(error)}") from error


def _go_on(database_url: str, schema: str) -> Gap:
    parameters = connection_parameters(database_url, schema=schema, application_name=APPLICATION_NAME)
    with psycopg.connect(**parameters) as connection, connection.transaction():
        lock_migrations(connection, schema)
        connection.execute("LOCK TABLE processes")  # from here on no broker can start
        refuse_brokers(connection, schema)
        [(known_until, now)] = read_known_time(connection)
        gap = max(0, (now - (known_until or now)) // timedelta(microseconds=1)) + _MARGIN
        shards = _leave_out(connection, gap)
        for table, column in connection.execute(_COLUMNS, [list(NUMBERED)]).fetchall():
            _skip(connection, table, column, gap * _RESOURCES_A_SECOND // 1_000_000)
        return Gap(gap, shards)


def read_known_time(connection: psycopg.Connection[Any]) -> Iterable[tuple[datetime | None, datetime]]:
    """Returns one row: the newest time in the database, and the present time."""
    return connection.execute(_KNOWN_TIME)


def _leave_out(connection: psycopg.Connection[Any], gap: int) -> int:
    asked = {"gap": gap, "end": FIRST_ID_SEQ, "last": SEQUENCES_PER_SHARD}
    moved = connection.execute(_LEAVE_OUT, asked).rowcount
    [(count,)] = connection.execute("SELECT count(*) FROM shards")
    if moved != count:
        raise IdsUsedUp(f"{count - moved:,} shards have no room for {gap:,} ids that may have been given out")
    return moved


def _skip(connection: psycopg.Connection[Any], table: str, column: str, count: int) -> None:
    counted = sql.SQL("pg_get_serial_sequence({}, {})").format(sql.Literal(table), sql.Literal(column))
    connection.execute(sql.SQL("SELECT setval({0}, nextval({0}) + {1})").format(counted, sql.Literal(count)))
