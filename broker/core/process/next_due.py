"""When the next message that waits is due, as far as this process knows."""

import asyncio
from datetime import datetime


class NextDue:
    """Who schedules a message tells it; who appends what is due waits for it.  Owned by that one task."""

    def __init__(self) -> None:
        self._told = asyncio.Event()
        self._until: datetime | None = None  # what is waited for; None: nothing is

    def tell(self, due_at: datetime) -> None:
        """A message is due at this time."""
        if self._until is None or due_at < self._until:
            self._told.set()

    async def wait(self, until: datetime, now: datetime) -> None:
        """Until then, or until something was told that is due earlier, since this was last called or now."""
        self._until = until
        try:
            async with asyncio.timeout(max((until - now).total_seconds(), 0.0)):
                await self._told.wait()
        except TimeoutError:
            pass
        finally:
            self._until = None
            self._told.clear()
