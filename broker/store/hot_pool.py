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
    async def connection(self, following: HotConnection | None = None) -> AsyncIterator[HotConnection]:
        """A connection for the block; one that broke is not used again.

        `following` is one that other tasks hold, to be used beside them: the last that leaves it gives it back.
        """
        if following is None:
            await self._room.acquire()
        try:
            connection = following or self._take() or await self._connect()
        except BaseException:
            self._room.release()
            raise
        connection.users += 1
        try:
            yield connection
        finally:
            connection.users -= 1
            if not connection.users:
                self._room.release()
                await self._give_back(connection)

    async def _give_back(self, connection: HotConnection) -> None:
        if self._closed or connection.failed:
            await connection.close()
        else:
            self._idle.append(connection)

    def _take(self) -> HotConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.failed:
                return connection
        return None

    async def close(self) -> None:
        """Close the idle connections now and the others when they are given back."""
        self._closed = True
        while self._idle:
            await self._idle.pop().close()
