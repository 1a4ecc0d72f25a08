"""A loop around one bounded pass of work."""

import asyncio
import random
from collections.abc import Awaitable, Callable

_LONG_PASS_SECONDS = 30.0


class PeriodicWorker:
    """Calls `run_once` about every `interval_seconds`; several processes drift apart by the jitter."""

    def __init__(self, run_once: Callable[[], Awaitable[object]], interval_seconds: float) -> None:
        self.run_once = run_once
        self._interval_seconds = interval_seconds

    @property
    def healthy_seconds(self) -> float:
        """The seconds after which a pass has gone well."""
        return self._interval_seconds + _LONG_PASS_SECONDS

    async def run(self) -> None:
        """Runs passes until one raises an error, which the supervisor handles."""
        while True:
            await asyncio.sleep(self._interval_seconds * random.uniform(0.8, 1.0))  # noqa: S311
            await self.run_once()
