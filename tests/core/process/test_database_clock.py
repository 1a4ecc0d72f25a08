"""The process's idea of the database's time."""

import time
from datetime import datetime, timedelta
from typing import cast

import pytest

from broker.core.process.database_clock import DatabaseClock, seconds_since_boot
from broker.db.driver.database import Database


async def test_it_is_right_at_once_after_the_machine_was_suspended(database: Database) -> None:
    """Leases that a stale time gave would be over when they begin, for everybody else."""
    suspended = 0.0
    clock = DatabaseClock(database, ticks=lambda: seconds_since_boot() + suspended)
    await clock.synchronise()
    before = clock.now()
    suspended = 3600.0
    assert clock.now() - before >= timedelta(hours=1)
    await clock.synchronise()
    assert clock.now() - before < timedelta(minutes=30)  # the database's machine was not


class _World:
    """A database, and a process that stands still for half a second after each of the next `stalls` answers."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._passed = 0.0
        self.step = 0.0  # of the database's clock
        self.stalls = 0
        self.clock = DatabaseClock(cast(Database, self), ticks=lambda: seconds_since_boot() + self._passed)

    async def now(self) -> datetime:
        now = await self._database.now() + timedelta(seconds=self._passed + self.step)
        if self.stalls:
            self.stalls -= 1
            self._passed += 0.5
        return now

    async def error(self) -> float:
        """Seconds."""
        self.stalls = 0
        return abs((self.clock.now() - await self.now()).total_seconds())


async def test_answers_that_are_slow_for_a_while_do_not_put_it_off(database: Database) -> None:
    """It was off by half of that then, and leases of one broker were shorter by that for the others."""
    world = _World(database)
    world.stalls = 5
    await world.clock.synchronise()
    assert await world.error() < 0.2


async def test_what_it_knew_is_surer_than_slow_answers(database: Database) -> None:
    world = _World(database)
    await world.clock.synchronise()
    world.stalls = 100
    await world.clock.synchronise()
    assert await world.error() < 0.2


async def test_slow_answers_are_believed_if_they_prove_it_wrong(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    world = _World(database)
    await world.clock.synchronise()
    assert caplog.messages == []
    world.stalls, world.step = 100, 3600.0
    await world.clock.synchronise()
    assert await world.error() < 1
    [line] = caplog.messages
    assert line.startswith("the database's clock is +3")
    assert line.endswith(" s from where it was: it was set, or a machine stood still")


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="a clock of Linux")
def test_the_time_for_which_a_machine_was_suspended_counts() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    ticks = seconds_since_boot()
    assert before <= ticks <= time.clock_gettime(time.CLOCK_BOOTTIME)
