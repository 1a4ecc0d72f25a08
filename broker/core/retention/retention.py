"""Frees space: drops, moves to the stragglers or deletes what is not needed any more (A10)."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from broker.core.log.dead_letter_retention import delete_dead_letter_records, read_kept_since, resolve_acknowledged
from broker.core.log.deleting import BATCH
from broker.core.log.partitions import Partition, drop_detached_leftovers, drop_partition, list_partitions
from broker.core.records.journal import journal_parameters
from broker.core.retention.finished_attempts import delete_finished_attempts
from broker.core.retention.pins import read_oldest_pins
from broker.db.driver import statements
from broker.db.driver.database import Connection, Database
from broker.db.driver.in_doubt import is_nothing_in_doubt
from broker.db.driver.locks import CLEANING_UP, DROPPING, Held, held
from broker.model.dead_letter import KEPT
from broker.model.journal import Event, Row, ranges_of, rows_of
from broker.model.sequences import from_bits, from_multirange
from broker.observability.lost_dead_letters import LostDeadLetters
from broker.observability.state_changes import StateChanges

_COUNT_STRAGGLERS = statements.load("count_stragglers")
_COPY_STRAGGLERS = statements.load("copy_stragglers")
_DELETE_UNWANTED_STRAGGLERS = statements.load("delete_unwanted_stragglers")
_INSERT_JOURNAL = statements.load("insert_journal")
_COUNT_KEPT_DEAD_LETTERS = statements.load("count_kept_dead_letters")
_COPY_KEPT_DEAD_LETTERS = statements.load("copy_kept_dead_letters")
_DELETE_CLOSED_SHARDS = statements.load("delete_closed_shards")

# No publish can be in progress into a partition that ended so long ago: its statement would have timed out.
_STILL_PUBLISHED = timedelta(minutes=5)
MAX_STRAGGLERS = 10_000  # messages that are moved to the stragglers instead of keeping their partition
_KEPT = "partitions that cannot be dropped"
_EVER, _NEVER = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


@asynccontextmanager
async def cleaning_up(database: Database) -> AsyncIterator[bool]:
    """Whether this process may clean up: one at a time does."""
    async with held(database, CLEANING_UP, wait=False) as lock:
        yield lock is not None


@asynccontextmanager
async def _dropping(connection: Connection, database: Database) -> AsyncIterator[Held | None]:
    """Prevents rows of messages that nothing refers to just now from being made within the block (HOLD_RETENTION).

    None: such rows may have been made before and not be visible yet, as on nodes that have not heard of a commit.
    """
    async with held(database, DROPPING, wait=True) as lock:
        yield lock if await is_nothing_in_doubt(connection) else None


async def drop_partitions_behind(
    connection: Connection, *, database: Database, now: datetime, states: StateChanges | None = None
) -> int:
    """Drops the partitions with no message that is still needed, and reports that to `states`.  Returns how many.

    A partition that only a few delivery attempts still need is dropped as well, after their messages have been
    moved to `straggler_batches`.
    """
    await drop_detached_leftovers(connection)
    async with _dropping(connection, database) as lock:
        return await _drop_partitions(connection, lock, now, states or StateChanges()) if lock else 0


async def _drop_partitions(connection: Connection, lock: Held, now: datetime, states: StateChanges) -> int:
    pins = await read_oldest_pins(connection, now=now)
    oldest, oldest_attempt = (pin or _NEVER for pin in pins)
    dropped = 0
    partitions = await list_partitions(connection)
    unwanted = [p for p in partitions if p.end <= min(now - _STILL_PUBLISHED, oldest) or p.detaching]
    if unwanted:
        await resolve_acknowledged(connection, before=unwanted[-1].end)
    for partition in unwanted:
        has_attempts = oldest_attempt < partition.end
        if not await _move_stragglers(connection, partition, states, now=now, has_attempts=has_attempts):
            continue
        await lock.check()
        if await drop_partition(connection, partition):
            dropped += 1
            states.forget(_KEPT, partition.name)
            states.report("partitions", f"space is given back: {_described(partition)} are wanted no more")
    return dropped


def _described(partition: Partition) -> str:
    return f"the messages published from {partition.start:%Y-%m-%dT%H:%MZ} to {partition.end:%Y-%m-%dT%H:%MZ}"


async def _move_stragglers(
    connection: Connection, partition: Partition, states: StateChanges, *, now: datetime, has_attempts: bool
) -> bool:
    """Copies the stragglers of a partition; False if they are too many to move.

    They are the outstanding messages (none unless it `has_attempts`), and unresolved dead letters.  All cursors are
    past the partition, so no new attempt can need a message of it: those that exist, and what they are split into
    or redelivered as, hold the same sequences.
    """
    bounds = {"start": partition.start, "end": partition.end}
    of_dead_letters = bounds | {"kept_since": await read_kept_since(connection, now=now)}
    outstanding = await _count(connection, _COUNT_STRAGGLERS, bounds) if has_attempts else 0
    dead_letters = await _count(connection, _COUNT_KEPT_DEAD_LETTERS, of_dead_letters)
    if outstanding + dead_letters > MAX_STRAGGLERS:
        counts = [f"{outstanding:,} are delivered and not acknowledged"] if outstanding else []
        counts += [f"{dead_letters:,} are dead letters that nobody has dealt with"] if dead_letters else []
        why = f"{', '.join(counts)}; up to {MAX_STRAGGLERS:,} would be moved aside"
        states.begins(_KEPT, partition.name, f"{_described(partition)} keep their space", why)
        return False
    if outstanding:
        await connection.execute(_COPY_STRAGGLERS, bounds)
    if dead_letters:
        await connection.execute(_COPY_KEPT_DEAD_LETTERS, of_dead_letters)
    return True


async def _count(connection: Connection, statement: str, parameters: Mapping[str, Any]) -> int:
    row = await (await connection.execute(statement, parameters)).fetchone()
    assert row is not None
    return int(row[0])


async def delete_unwanted(connection: Connection, *, database: Database, now: datetime) -> int:
    """Delete attempts, stragglers and shards that nothing refers to.  Returns the attempts deleted."""
    deleted = 0
    while True:
        async with connection.transaction():
            rows, more = await delete_finished_attempts(connection, now=now, limit=BATCH)
            await _journal_expired(connection, rows, now)
        deleted += len(rows)
        if not more:
            break
    async with _dropping(connection, database) as lock:
        if lock is not None:
            await _delete_stragglers(connection, now)
    async with connection.transaction():
        cursor = await connection.execute(_DELETE_CLOSED_SHARDS)
        gone = [shard_id for (shard_id,) in await cursor.fetchall()]
        await connection.execute(b"DELETE FROM known_shards WHERE shard_id = ANY (%s)", [gone])
    return deleted


async def _delete_stragglers(connection: Connection, now: datetime) -> None:
    """Deletes stragglers that no subscription needs any more."""
    partitions = await list_partitions(connection)
    if partitions:  # dead letters that are among them are older than all partitions, but for gaps
        await resolve_acknowledged(connection, before=partitions[0].start)
    kept_since = await read_kept_since(connection, now=now)
    await connection.execute(_DELETE_UNWANTED_STRAGGLERS, {"kept_since": kept_since})


async def _journal_expired(connection: Connection, attempts: Sequence[tuple[Any, ...]], now: datetime) -> None:
    """Writes the messages that were not acked, of attempts past their retention, into the journal."""
    of_shards: dict[int, list[Row]] = {}
    for shard_id, subscription_id, number, multirange, bits in attempts:
        seqs = from_multirange(multirange)
        gone = ranges_of(seqs[ordinal] for ordinal in from_bits(bits))
        of_shards.setdefault(shard_id, []).extend(rows_of(None, subscription_id, Event.EXPIRED, number, gone))
    for shard_id, rows in of_shards.items():
        if rows:
            await connection.execute(_INSERT_JOURNAL, journal_parameters(shard_id, rows, now))


async def delete_dead_letters(connection: Connection, *, now: datetime, lost: LostDeadLetters | None = None) -> int:
    """Deletes the records of dead letters that are no longer in the log.  Returns how many.

    `lost` counts those that were unresolved.
    """
    deleted = 0
    gone: Counter[str] = Counter()
    since = _EVER
    for partition in await list_partitions(connection):
        more = since < partition.start
        while more:
            count, of_subscriptions = await delete_dead_letter_records(
                connection, since=since, until=partition.start, now=now, limit=BATCH
            )
            gone.update(of_subscriptions)
            deleted += count
            more = count == BATCH
        since = partition.end
    if lost is not None:
        lost.report(gone, f"they are kept for {KEPT.days} days, or as long as their topic retains messages")
    return deleted
