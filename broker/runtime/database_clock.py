"""The database's time, without asking it each time.

Every process hands `now` to its statements; a process with a wrong wall clock would end leases early or drag
a shard's time away.  So each tracks the offset of its own monotonic clock to the database's.
"""

import time
from datetime import datetime, timedelta

from broker.store.database import Database

_SAMPLES = 3


class DatabaseClock:
    """`now()` is the database's time, aware and in UTC, right to within half a round trip."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._base: datetime | None = None
        self._base_monotonic = 0.0

    def now(self) -> datetime:
        assert self._base is not None, "synchronise() comes first"
        return self._base + timedelta(seconds=time.monotonic() - self._base_monotonic)

    async def synchronise(self) -> None:
        """Ask the database a few times and keep the answer that came back fastest."""
        fastest = float("inf")
        for _ in range(_SAMPLES):
            before = time.monotonic()
            now = await self._database.now()
            after = time.monotonic()
            if after - before < fastest:
                fastest = after - before
                base, base_monotonic = now, (before + after) / 2
        self._base, self._base_monotonic = base, base_monotonic
