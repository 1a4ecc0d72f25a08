"""A parent for the tasks that are started on demand (flushes, claims), and a wait for their results."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def first_done(*futures: asyncio.Future[Any], seconds: float) -> None:
    """Waits until one of the futures is done, or so many seconds have passed: asyncio.wait at half of its cost."""
    loop = asyncio.get_running_loop()
    over = loop.create_future()

    def end(_: object = None) -> None:
        if not over.done():
            over.set_result(None)

    timer = loop.call_later(seconds, end)
    for future in futures:
        future.add_done_callback(end)
    try:
        await over
    finally:
        timer.cancel()
        for future in futures:
            future.remove_done_callback(end)


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
