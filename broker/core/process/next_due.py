"""When the next waiting message is due, as far as this process knows."""

import asyncio
from datetime import datetime


class NextDue:
    """The time of the next due message.  Publishers call `notify`; the one task that appends due messages waits."""

    def __init__(self) -> None:
        self._notified = asyncio.Event()
        self._until: datetime | None = None  # the time that is awaited; None: none

    def notify(self, due_at: datetime) -> None:
        """Notes that a message is due at this time."""
        if self._until is None or due_at < self._until:
            self._notified.set()

    async def wait(self, until: datetime, now: datetime) -> None:
        """Waits until then, or until a notification of something due earlier since the last call."""
        self._until = until
        try:
            async with asyncio.timeout(max((until - now).total_seconds(), 0.0)):
                await self._notified.wait()
        except TimeoutError:
            pass
        finally:
            self._until = None
            self._notified.clear()
