"""The job that relays the outbox (J7)."""

import asyncio
from contextlib import suppress

from broker.features.outbox.outbox_relay import OutboxRelay

_IDLE_SECONDS = 1.0  # how soon a process sees what nobody told it of
_POLL_SECONDS = 0.004  # between two passes while something comes


class OutboxWorker:
    """The worker that runs the relay in each process."""

    healthy_seconds = 30.0

    def __init__(self, relay: OutboxRelay) -> None:
        self.relay = relay

    async def run(self) -> None:
        """Relays until an error, which the supervisor handles."""
        self.relay.forget()  # whatever was seen before an error, there may be another server now
        while True:
            self.relay.committed.clear()
            if not await self.relay.run_once():
                await self._wait()

    async def _wait(self) -> None:
        seconds = _POLL_SECONDS if self.relay.is_awake else _IDLE_SECONDS
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.relay.committed.wait()
