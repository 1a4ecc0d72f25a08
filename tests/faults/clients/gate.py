"""Quiet moments: while the operator is in one, nobody who passes the gate is busy."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Gate:
    """Any number of clients are busy, or one operator has quiet."""

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._busy = 0
        self._closed = False

    @asynccontextmanager
    async def busy(self) -> AsyncIterator[None]:
        async with self._changed:
            await self._changed.wait_for(lambda: not self._closed)
            self._busy += 1
        try:
            yield
        finally:
            async with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    @asynccontextmanager
    async def quiet(self) -> AsyncIterator[None]:
        self._closed = True
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: not self._busy)
            yield
        finally:
            async with self._changed:
                self._closed = False
                self._changed.notify_all()
