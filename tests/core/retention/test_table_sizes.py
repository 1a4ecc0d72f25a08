"""The size of the broker's tables against --database-size-max: measured by one process, known to all."""

import logging
from collections.abc import Callable
from datetime import timedelta

import pytest

from broker.core.context.storage_alarm import StorageAlarm
from broker.core.retention.table_sizes import TableSizes
from broker.db.driver.database import Database
from broker.db.driver.locks import MEASURING, try_lock
from tests.fixtures.core import make_core
from tests.fixtures.log import Log
from tests.fixtures.outbox import Hand

_MINUTE = timedelta(minutes=1)
_CAPACITY = 50_000_000


class Process:
    """What one broker process knows."""

    def __init__(self, database: Database, clock: Hand, max_bytes: int) -> None:
        self.alarm = StorageAlarm()
        self.sizes = TableSizes(make_core(database, clock, storage=self.alarm), max_bytes=max_bytes)

    async def size(self) -> int:
        await self.sizes.run_once()
        assert self.alarm.tables is not None
        return self.alarm.tables.size


@pytest.fixture
def clock(log: Log) -> Hand:
    clock = Hand(log.database)
    clock.moment = log.start
    return clock


@pytest.fixture
def process(log: Log, clock: Hand) -> Callable[[int], Process]:
    return lambda max_bytes: Process(log.database, clock, max_bytes)


async def _grow(log: Log) -> None:
    await log.execute("CREATE TABLE ballast AS SELECT repeat(md5(n::text), 10) FROM generate_series(1, 30000) AS n")


async def test_tables_that_grow_past_the_limit_pause_publishing_and_smaller_ones_resume_it(
    log: Log, clock: Hand, process: Callable[[int], Process], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "broker.state")
    small = await process(_CAPACITY).size()
    await _grow(log)
    limit = 2 * small
    one, other = process(limit), process(limit)
    assert await one.size() > limit
    await other.sizes.run_once()
    for each in (one, other):
        assert each.alarm.is_raised
        assert each.alarm.refusal() is not None
    await log.execute("DROP TABLE ballast")
    for each in (one, other):
        await each.sizes.run_once()
        assert each.alarm.is_raised, "it is measured again after a while"
    clock.moment += _MINUTE
    for each in (one, other):
        await each.sizes.run_once()
        assert not each.alarm.is_raised
    lines = [record.getMessage() for record in caplog.records]
    assert sum(line.startswith("publishing is paused: the broker's tables take ") for line in lines) == 2
    assert all("--database-size-max" in line for line in lines if line.startswith("publishing is paused"))


async def test_one_that_starts_behind_the_limit_pauses_as_the_others_do(
    log: Log, clock: Hand, process: Callable[[int], Process]
) -> None:
    size = await process(_CAPACITY).size()
    [(is_full,)] = await log.rows("SELECT is_full FROM table_sizes")
    assert not is_full
    limit = int(size * 1.1)
    first = process(limit)
    await first.sizes.run_once()
    assert not first.alarm.is_raised, "the tables are below the limit, if only just"
    await log.execute(f"UPDATE table_sizes SET is_full = true WHERE max_bytes = {limit}")
    clock.moment += _MINUTE
    late = process(limit)
    await late.sizes.run_once()
    await first.sizes.run_once()
    assert (late.alarm.is_raised, first.alarm.is_raised) == (True, True)
    assert not process(_CAPACITY).alarm.is_raised


async def test_while_one_process_measures_the_others_go_by_what_is_known(
    log: Log, clock: Hand, process: Callable[[int], Process]
) -> None:
    before = await process(_CAPACITY).size()
    await _grow(log)
    clock.moment += _MINUTE
    async with log.database.connection() as measuring, measuring.transaction():
        assert await try_lock(measuring, MEASURING)
        assert await process(_CAPACITY).size() == before
    assert await process(_CAPACITY).size() > before + 5_000_000


async def test_without_a_limit_nothing_is_measured(log: Log, process: Callable[[int], Process]) -> None:
    unlimited = process(0)
    await unlimited.sizes.run_once()
    assert unlimited.alarm.tables is None
    assert await log.rows("SELECT * FROM table_sizes") == []
