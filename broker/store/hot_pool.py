"""A pool of connections for the hot statements."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from broker.store.hot_connection import HotConnection


class HotPool:
    """At most `size` connections, made when they are needed; the one that was used last is handed out first."""

    def __init__(self, connect: Callable[[], Awaitable[HotConnection]], *, size: int) -> None:
        self._connect = connect
        self._room = asyncio.Semaphore(size)
        self._idle: list[HotConnection] = []
        self._closed = False

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[HotConnection]:
        """A connection for the block; one that broke is not used again."""
        async with self._room:
            connection = self._take() or await self._connect()
            try:
                yield connection
            finally:
                if self._closed:
                    await connection.close()
                elif not connection.closed:
                    self._idle.append(connection)

    def _take(self) -> HotConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed:
                return connection
        return None

    async def close(self) -> None:
        """Close the idle connections now and the others when they are given back."""
        self._closed = True
        while self._idle:
            await self._idle.pop().close()
