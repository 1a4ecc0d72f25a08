"""A parent for the tasks that the runtime starts on demand (flushes, claims)."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class Tasks:
    """Holds its tasks until they end; `close` cancels those that are left and waits for them."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def start(self, coroutine: Coroutine[Any, Any, None], *, name: str) -> None:
        task = asyncio.create_task(coroutine, name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def close(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
