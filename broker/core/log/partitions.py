"""Creates partitions of `message_batches`, `message_identities` and `delivery_records` ahead of time, and drops old
ones (A10).

No publish has to wait for this.  A partition is created by CREATE TABLE, CHECK and ATTACH PARTITION, and dropped by
DETACH PARTITION … CONCURRENTLY and DROP TABLE: these take no lock on the table that conflicts with a publish or a
claim.  CREATE TABLE … PARTITION OF and a plain DROP do.  So does a plain DETACH, which Citus needs
(db/driver/table_changes.py).
"""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from psycopg import sql

from broker.core.log.partition_width import MIN_WIDTH, next_width
from broker.db.driver.database import Connection, Database
from broker.db.driver.locks import MAKING_PARTITIONS, lock
from broker.db.driver.table_changes import detach_and_drop, measure_table, prepare_to_change_tables
from broker.model.errors import Unavailable

# Publish times may be this far ahead of now; the janitor must run at least twice within it.
AHEAD = timedelta(minutes=10)

T = TypeVar("T")


_BOUNDS = re.compile(r"FROM \('([^']+)'\) TO \('([^']+)'\)")

_LIST = b"""
SELECT c.relname, pg_get_expr(c.relpartbound, c.oid) AS bounds, i.inhdetachpending
FROM pg_inherits AS i
JOIN pg_class AS c ON c.oid = i.inhrelid
WHERE i.inhparent = %s::regclass
"""


class PartitionMissing(Exception):
    """A partition for the time of a write does not exist; nothing was written."""


@dataclass(frozen=True, slots=True)
class Partitioned:
    """A table with partitions by time, whose names begin with `prefix`; none is narrower than `narrowest`."""

    table: str
    prefix: str
    column: str
    narrowest: timedelta
    storage: sql.SQL

    @property
    def name(self) -> sql.Identifier:
        return sql.Identifier(self.table)


# A batch stays in its row as long as that fits a page: core/log/messages.py fills two rows a page.
MESSAGES = Partitioned(
    "message_batches",
    "messages",
    "publish_time",
    MIN_WIDTH,
    sql.SQL("autovacuum_vacuum_insert_scale_factor = 0.5, toast_tuple_target = 8160"),
)
# Each partition that the window covers is read for each message, so there must not be too many.
IDENTITIES = Partitioned(
    "message_identities",
    "identities",
    "published_at",
    timedelta(hours=1),
    sql.SQL("autovacuum_vacuum_insert_scale_factor = 0.5"),
)
RECORDS = Partitioned(
    "delivery_records",
    "records",
    "recorded_at",
    timedelta(hours=1),
    sql.SQL("autovacuum_vacuum_insert_scale_factor = 0.5"),
)


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition holds times of publishing from `start` up to, not including, `end`."""

    name: str
    start: datetime
    end: datetime
    detaching: bool = False


async def list_partitions(connection: Connection, of: Partitioned = MESSAGES) -> list[Partition]:
    """The attached partitions, oldest first, with those whose detaching was interrupted."""
    cursor = await connection.execute(_LIST, [of.table])
    partitions = []
    for name, bounds, detaching in await cursor.fetchall():
        match = _BOUNDS.search(bounds)
        assert match is not None, bounds
        start, end = (datetime.fromisoformat(text).astimezone(UTC) for text in match.groups())
        partitions.append(Partition(name, start, end, detaching))
    return sorted(partitions, key=lambda partition: partition.start)


async def make_partitions_ahead(connection: Connection, *, now: datetime) -> int:
    """Make partitions until publish times up to `now` + 10 minutes have one, of identities and records of
    deliveries as well.  Returns how many of messages were made.

    Also covers publish times that shards have already reached, should the clock have gone back.
    """
    cursor = await connection.execute(b"SELECT max(last_publish_time) FROM shards")
    row = await cursor.fetchone()
    assert row is not None
    latest = max(now, row[0] or now) + AHEAD
    made = await _make_until(connection, MESSAGES, now, latest)
    await _make_until(connection, IDENTITIES, now, latest)
    await _make_until(connection, RECORDS, now, latest)
    return made


async def with_partitions(database: Database, now: Callable[[], datetime], write: Callable[[], Awaitable[T]]) -> T:
    """The result of `write()`.  If that raises PartitionMissing, make the partitions and call it again.

    A write that raises it has changed nothing and holds no connection.  The janitor makes partitions ahead, so this
    is for when it could not, or when a clock has jumped.  Raises Unavailable if the time still has no partition.
    """
    try:
        return await write()
    except PartitionMissing:
        async with database.connection() as connection:
            await make_partitions_ahead(connection, now=now())
    try:
        return await write()
    except PartitionMissing as error:
        raise Unavailable("There is no partition for messages of this time yet.") from error


async def _make_until(connection: Connection, of: Partitioned, now: datetime, latest: datetime) -> int:
    made = 0
    while missing := await _missing(connection, of, now, latest):
        for start, end in missing:
            if not await _make(connection, of, start, end):
                break  # another process has created one, perhaps with other bounds
            made += 1
    return made


async def _missing(
    connection: Connection, of: Partitioned, now: datetime, latest: datetime
) -> list[tuple[datetime, datetime]]:
    """The bounds of the partitions to make: they continue the newest one, or begin anew after a gap."""
    partitions = await list_partitions(connection, of)
    if not partitions:
        start, width = _whole_minutes(now - AHEAD), of.narrowest
    else:
        last = partitions[-1]
        start = last.end
        width = max(next_width(last.end - last.start, await measure_table(connection, last.name)), of.narrowest)
        if start < now - AHEAD:  # none was created for a while: leave the gap empty
            start, width = max(start, _whole_minutes(now - AHEAD)), of.narrowest
    bounds = []
    while start <= latest:
        # If a clock has jumped ahead, one partition covers the gap, whatever its size.
        end = max(start + width, latest) if latest - start > timedelta(days=1) else start + width
        bounds.append((start, end))
        start = end
    return bounds


def _whole_minutes(time: datetime) -> datetime:
    return time.replace(second=0, microsecond=0)


async def _make(connection: Connection, of: Partitioned, start: datetime, end: datetime) -> bool:
    """Makes a partition; False: another process has just made one that `start` or a later time is in."""
    name = sql.Identifier(f"{of.prefix}_{start:%Y%m%d_%H%M%S}")
    column = sql.Identifier(of.column)
    # A CHECK that is equivalent to the bounds saves ATTACH from reading the table.
    check = sql.SQL("{0} >= {1} AND {0} < {2}").format(column, start, end)
    async with connection.transaction():
        await prepare_to_change_tables(connection)
        await lock(connection, MAKING_PARTITIONS)
        if any(partition.end > start for partition in await list_partitions(connection, of)):
            return False
        await connection.execute(
            sql.SQL(
                "CREATE TABLE {} (LIKE {} INCLUDING DEFAULTS INCLUDING CONSTRAINTS, CHECK ({})) WITH ({})"
            ).format(name, of.name, check, of.storage),
            prepare=False,
        )
        await connection.execute(
            sql.SQL("ALTER TABLE {} ATTACH PARTITION {} FOR VALUES FROM ({}) TO ({})").format(
                of.name, name, start, end
            ),
            prepare=False,
        )
    return True


async def drop_partition(connection: Connection, partition: Partition, of: Partitioned = MESSAGES) -> bool:
    """Takes a partition out and drops it; False if it is locked just now (the next run tries again)."""
    return await detach_and_drop(connection, of.table, partition.name, detaching=partition.detaching)


async def drop_detached_leftovers(connection: Connection, of: Partitioned = MESSAGES) -> int:
    """Drop tables that were detached by a process that was killed before it could drop them."""
    cursor = await connection.execute(
        rb"""
        SELECT c.relname
        FROM pg_class AS c
        JOIN pg_class AS parent ON parent.oid = %s::regclass AND parent.relnamespace = c.relnamespace
        WHERE c.relkind = 'r' AND c.relname ~ %s AND NOT c.relispartition
        """,
        [of.table, rf"^{of.prefix}_\d{{8}}_\d{{6}}$"],
    )
    names = [row[0] for row in await cursor.fetchall()]
    for name in names:
        await connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(name)), prepare=False)
    return len(names)
