"""Push endpoints: an HTTP server of ours.  Its paths say how it behaves: /healthy/<subscription>, /flaky/<…>.

Faults put all of them in a mood: they hang (nothing is answered until the mood is over), reset every connection
that brings a request, or flap (half a second well, half a second not).
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Literal, TypeAlias

from aiohttp import web

from tests.faults.clients.lease import now
from tests.faults.clients.puller import delivery
from tests.faults.clients.topology import ACK_DEADLINE_SECONDS, FLAKY
from tests.faults.history import History, Receive

Mood: TypeAlias = Literal["hang", "reset", "flap"]

_TAKEN = 204
_FLAPS_SECONDS = 0.5
_SLOW_SECONDS = 0.05
# Of requests to a flaky endpoint: so many are refused, reset, or answered when their lease is over.
_REFUSED, _RESET, _LATE = 0.05, 0.03, 0.01


class Endpoints:
    """Notes every request, with what it was answered."""

    def __init__(self, history: History, dice: random.Random) -> None:
        self._history, self._dice = history, dice
        self._count = 0
        self._leaving = asyncio.Event()
        self._moods: list[Mood] = []
        self._calm = asyncio.Event()  # none of them hangs
        self._calm.set()

    def begin(self, mood: Mood) -> None:
        self._moods.append(mood)
        if mood == "hang":
            self._calm.clear()

    def end(self, mood: Mood) -> None:
        self._moods.remove(mood)
        if "hang" not in self._moods:
            self._calm.set()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """The URL to push below."""
        app = web.Application()
        app.router.add_post("/{behaviour}/{subscription}", self._receive)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=2.0)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            self._leaving.set()
            self._calm.set()
            await runner.cleanup()

    async def _receive(self, request: web.Request) -> web.StreamResponse:
        began = now()
        received = delivery(await request.json())
        self._count += 1
        received.ack_id = f"push-{self._count}"  # nobody acks by it
        status = await self._decide(request.match_info["behaviour"])
        if request.transport is None or request.transport.is_closing():
            status = None  # whatever it would have been
        self._history.add(
            Receive(
                who="endpoint",
                began=began,
                ended=now(),
                subscription=request.match_info["subscription"],
                how="push",
                deliveries=[received],
                status=status,
            )
        )
        if status is None and request.transport is not None:
            request.transport.abort()
        return web.Response(status=status or 500)

    async def _decide(self, behaviour: str) -> int | None:
        roll = self._dice.random()
        await self._calm.wait()
        if "reset" in self._moods:
            return None
        if "flap" in self._moods and now() // _FLAPS_SECONDS % 2:
            return 503
        if behaviour == FLAKY:
            if roll < _REFUSED:
                return 500
            if roll < _REFUSED + _RESET:
                return None
            if roll < _REFUSED + _RESET + _LATE:
                return await self._late()
        await asyncio.sleep(_SLOW_SECONDS * self._dice.random())
        return _TAKEN

    async def _late(self) -> int:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._leaving.wait(), ACK_DEADLINE_SECONDS + 1)
        return _TAKEN
