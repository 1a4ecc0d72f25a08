"""An application of ASGI that is loaded with its first request, and so costs a start nothing."""

import asyncio
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send


class OnFirstUse:
    """Passes requests to the application that `make` returns.  A thread calls `make`, since it may take long."""

    def __init__(self, make: Callable[[], ASGIApp]) -> None:
        self._make = make
        self._app: ASGIApp | None = None
        self._lock = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app or await self._load()
        await app(scope, receive, send)

    async def _load(self) -> ASGIApp:
        async with self._lock:
            if self._app is None:
                self._app = await asyncio.to_thread(self._make)
            return self._app
