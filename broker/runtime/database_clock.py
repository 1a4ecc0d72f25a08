"""The database's time, without asking it each time.

Every process hands `now` to its statements; a process with a wrong wall clock would end leases early or drag
a shard's time away.  So each tracks the offset to the database's of a clock of its own that nobody sets, and that
goes on while the machine is suspended: the leases of the database do, too.
"""

import time
from collections.abc import Callable
from datetime import datetime, timedelta

from broker.store.database import Database

_SAMPLES = 3
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # of Linux; the other stands still meanwhile


def seconds_since_boot() -> float:
    """With those for which the machine was suspended."""
    return time.clock_gettime(_BOOT_CLOCK)


class DatabaseClock:
    """`now()` is the database's time, aware and in UTC, right to within half a round trip."""

    def __init__(self, database: Database, *, ticks: Callable[[], float] = seconds_since_boot) -> None:
        """`ticks`: seconds, of a clock that only goes forward."""
        self._database = database
        self._ticks = ticks
        self._base: datetime | None = None
        self._base_ticks = 0.0

    def now(self) -> datetime:
        assert self._base is not None, "synchronise() comes first"
        return self._base + timedelta(seconds=self._ticks() - self._base_ticks)

    async def synchronise(self) -> None:
        """Ask the database a few times and keep the answer that came back fastest."""
        fastest = float("inf")
        for _ in range(_SAMPLES):
            before = self._ticks()
            now = await self._database.now()
            after = self._ticks()
            if after - before < fastest:
                fastest = after - before
                base, base_ticks = now, (before + after) / 2
        self._base, self._base_ticks = base, base_ticks
