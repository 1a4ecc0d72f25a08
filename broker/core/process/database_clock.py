"""The time of the database, without a query for each use.

Every process passes `now` to its statements.  With a wrong wall clock it would end ack deadlines early, or advance
the time of a shard.  So each process tracks the offset between the database's clock and a local clock that nothing
sets, and that continues while the machine is suspended, as the deadlines in the database do.
"""

import logging
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from broker.db.driver.database import Database

_SAMPLES, _MOST_SAMPLES = 3, 12
_GOOD_SECONDS = 0.02  # of a round trip; after one so short only the first samples are taken
_MOST_SECONDS = 5.0  # after which no more samples are taken
_STEP_SECONDS = 1.0  # a step of the clock from which on it is reported
_DRIFT = 1e-4  # the most by which the clocks of two machines drift apart, per second
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # the former counts suspended time, on Linux


logger = logging.getLogger(__name__)


seconds_since_boot = partial(time.clock_gettime, _BOOT_CLOCK)  # including suspended time


class DatabaseClock:
    """`now()` is the database's time, aware and in UTC, right to within half a round trip."""

    def __init__(self, database: Database, *, ticks: Callable[[], float] = seconds_since_boot) -> None:
        """`ticks`: seconds, of a clock that only goes forward."""
        self._database = database
        self._ticks = ticks
        self._sample: _Sample | None = None

    def now(self) -> datetime:
        sample = self._sample
        assert sample is not None, "synchronise() comes first"
        return sample.time + timedelta(seconds=self._ticks() - sample.tick)

    async def synchronise(self) -> None:
        """Ask the database a few times, more often while it is slow, and believe the answer that came back fastest.

        What was known before is believed rather if it is surer and the answer does not prove it wrong: a busy
        database or process would put the clock off by half of what the fastest answer took.
        """
        began = self._ticks()
        fastest = await self._ask()
        for number in range(1, _MOST_SAMPLES):
            good = fastest.error <= _GOOD_SECONDS / 2
            if number >= _SAMPLES and (good or self._ticks() - began > _MOST_SECONDS):
                break
            fastest = min(fastest, await self._ask(), key=lambda sample: sample.error)
        known = self._sample
        if known is None or not known.is_surer_than(fastest):
            self._sample = fastest
        if known is not None and abs(step := known.step_to(fastest)) >= _STEP_SECONDS:
            logger.warning(
                "the database's clock is %+.1f s from where it was: it was set, or a machine stood still", step
            )

    async def _ask(self) -> "_Sample":
        before = self._ticks()
        now = await self._database.now()
        after = self._ticks()
        return _Sample(now, (before + after) / 2, (after - before) / 2)


class _Sample(NamedTuple):
    """The database's time at a tick, right to within `error` seconds."""

    time: datetime
    tick: float
    error: float

    def now(self, tick: float) -> datetime:
        return self.time + timedelta(seconds=tick - self.tick)

    def step_to(self, later: "_Sample") -> float:
        """Returns by how many seconds the later sample is certainly ahead of this one's forecast.

        Less than 0: it is behind.
        """
        apart = (later.time - self.now(later.tick)).total_seconds()
        sure = abs(apart) - self.error - later.error
        return apart if sure > 0 else 0.0

    def is_surer_than(self, later: "_Sample") -> bool:
        """The later one contradicts it if one of the clocks was set, or stood still."""
        error = self.error + (later.tick - self.tick) * _DRIFT
        apart = abs((self.now(later.tick) - later.time).total_seconds())
        return error < later.error and apart <= error + later.error
