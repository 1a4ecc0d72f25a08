"""The process's idea of the database's time."""

import time
from datetime import timedelta

import pytest

from broker.runtime.database_clock import DatabaseClock, seconds_since_boot
from broker.store.database import Database


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


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="a clock of Linux")
def test_the_time_for_which_a_machine_was_suspended_counts() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    ticks = seconds_since_boot()
    assert before <= ticks <= time.clock_gettime(time.CLOCK_BOOTTIME)
