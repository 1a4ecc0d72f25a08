"""Partitions are made ahead, as wide as fills a set size, and dropped behind (A10)."""

import asyncio
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from broker.core.log import partitions
from broker.core.log.partition_width import MAX_WIDTH, MIN_WIDTH, next_width
from broker.core.log.partitions import (
    AHEAD,
    PartitionMissing,
    drop_detached_leftovers,
    drop_partition,
    list_partitions,
    make_partitions_ahead,
    with_partitions,
)
from broker.db.driver.database import Database
from broker.db.driver.locks import MAKING_PARTITIONS, held
from broker.model.errors import Unavailable
from tests.fixtures.log import Log
from tests.interleavings.steps import until_waiting


async def _make(database: Database, now: datetime) -> int:
    async with database.connection() as connection:
        return await make_partitions_ahead(connection, now=now)


async def _partitions(database: Database) -> list[tuple[datetime, datetime]]:
    async with database.connection() as connection:
        return [(partition.start, partition.end) for partition in await list_partitions(connection)]


async def test_partitions_cover_now_and_what_comes_without_a_gap(database: Database, now: datetime) -> None:
    bounds = [(start, end) for start, end in await _partitions(database) if end > now]
    assert bounds[0][0] <= now
    assert bounds[-1][1] > now + AHEAD
    assert all(end == start for (_, end), (start, _) in pairwise(bounds))


async def test_making_them_again_makes_none(database: Database, now: datetime) -> None:
    assert await _make(database, now) == 0


async def test_of_two_that_make_partitions_at_once_the_second_takes_those_of_the_first(
    database: Database, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(*_: object) -> None:
        """The first has the lock already."""

    later = now + timedelta(hours=1)
    async with held(database, MAKING_PARTITIONS, wait=True):
        second = asyncio.create_task(_make(database, later))
        await until_waiting(database)
        with monkeypatch.context() as patch:
            patch.setattr(partitions, "lock", nothing)
            assert await _make(database, later) > 0
    assert await second == 0
    bounds = await _partitions(database)
    assert all(end <= start for (_, end), (start, _) in pairwise(bounds))


async def test_after_a_gap_of_seconds_they_do_not_reach_back_into_the_last_one(log: Log) -> None:
    """Times are cut to whole minutes after a gap, and a partition that bridges days may end between two."""
    jumped = (log.start + timedelta(days=3)).replace(second=10, microsecond=0)
    await log.execute(f"UPDATE shards SET last_publish_time = '{jumped.isoformat()}'")
    await _make(log.database, log.start)
    end = (await _partitions(log.database))[-1][1]
    assert end.second
    assert await _make(log.database, end + AHEAD + timedelta(seconds=20)) > 0


async def test_a_broker_that_slept_for_days_begins_anew_and_leaves_the_gap_empty(
    database: Database, now: datetime
) -> None:
    before = len(await _partitions(database))
    await _make(database, now + timedelta(days=3))
    bounds = await _partitions(database)
    assert len(bounds) - before <= 4
    assert bounds[-1][1] > now + timedelta(days=3) + AHEAD


async def test_publish_times_that_a_shard_has_reached_are_covered_after_the_clock_went_back(log: Log) -> None:
    ahead = log.start + timedelta(hours=2)
    await log.execute(f"UPDATE shards SET last_publish_time = '{ahead.isoformat()}'")
    await _make(log.database, log.start)
    await log.publish("a", now=log.start)
    [delivery] = await log.pull(now=ahead)
    assert delivery.messages[0].publish_time == ahead


async def test_a_publish_without_a_partition_stores_nothing_and_says_so(log: Log) -> None:
    try:
        await log.publish("a", now=log.start + timedelta(days=30))
    except PartitionMissing:
        pass
    else:
        raise AssertionError("it was stored")
    assert await log.rows("SELECT head FROM shards") == [(0,)]
    await log.publish("b")
    assert await log.pull_texts() == ["b"]


async def test_a_write_that_still_finds_no_partition_once_they_are_made_is_unavailable(log: Log) -> None:
    with pytest.raises(Unavailable, match="no partition"):
        await with_partitions(
            log.database, lambda: log.start, lambda: log.publish("a", now=log.start + timedelta(days=30))
        )
    assert await log.rows("SELECT head FROM shards") == [(0,)]


async def test_a_table_that_was_detached_but_not_dropped_is_dropped_later(
    database: Database, now: datetime
) -> None:
    async with database.connection() as connection:
        [first, *_] = await list_partitions(connection)
        await connection.execute(
            f"ALTER TABLE message_batches DETACH PARTITION {first.name}".encode(), prepare=False
        )
        assert await drop_detached_leftovers(connection) == 1
        assert await drop_detached_leftovers(connection) == 0
        cursor = await connection.execute(b"SELECT to_regclass(%s), to_regclass('message_batches')", [first.name])
        assert await cursor.fetchone() == (None, "message_batches")


async def test_dropping_gives_way_to_somebody_who_holds_the_partition(log: Log) -> None:
    async with log.database.connection() as connection:
        [first, *_] = await list_partitions(connection)
        async with log.database.connection() as holder:
            await holder.execute(b"BEGIN")
            await holder.execute(f"LOCK TABLE {first.name} IN SHARE MODE".encode())
            assert not await drop_partition(connection, first)
            await holder.execute(b"COMMIT")
        [first, *_] = await list_partitions(connection)
        assert await drop_partition(connection, first)


def test_width_follows_what_the_last_partition_took() -> None:
    assert next_width(MIN_WIDTH, 0) == 2 * MIN_WIDTH
    assert next_width(timedelta(hours=1), 100 * 2**30) == MIN_WIDTH
    assert next_width(timedelta(hours=20), 0) == MAX_WIDTH
