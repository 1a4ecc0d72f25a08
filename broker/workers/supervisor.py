"""Runs the loops that nobody calls: starts them, restarts them when they fail, stops them."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping

logger = logging.getLogger(__name__)

_FIRST_DELAY_SECONDS, _MAX_DELAY_SECONDS = 0.1, 1.0  # all wait for the database, and must not for long after it
_HEALTHY_SECONDS = 30.0  # a worker that ran so long starts over with the shortest delay


class Supervisor:
    """Owns one task for each worker.  A worker is a coroutine function that runs until it fails."""

    def __init__(self, workers: Mapping[str, Callable[[], Awaitable[None]]]) -> None:
        self._workers = workers
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        for name, run in self._workers.items():
            self._tasks.append(asyncio.create_task(self._keep_running(name, run), name=name))

    async def stop(self) -> None:
        """Cancel the workers and wait until they have ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def _keep_running(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        delay = _FIRST_DELAY_SECONDS
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            try:
                await run()
                reason = "it ended"
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
            if loop.time() - started > _HEALTHY_SECONDS:
                delay = _FIRST_DELAY_SECONDS
            logger.warning("worker %r restarts in %.1f s: %s", name, delay, reason)
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))  # noqa: S311
            delay = min(delay * 2, _MAX_DELAY_SECONDS)
