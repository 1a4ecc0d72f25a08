"""Runs background loops: starts them, restarts them when they fail, and stops them."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from broker.core.process.failures import report_failure
from broker.observability.log import reason
from broker.observability.state_changes import StateChanges

logger = logging.getLogger(__name__)

_FIRST_DELAY_SECONDS, _MAX_DELAY_SECONDS = 0.1, 1.0  # short, because loops wait for the database
_HEALTHY_SECONDS = 30.0
_KIND = "background workers"


class Worker(Protocol):
    """`run` goes on until it fails.  One that has run for `healthy_seconds` works."""

    @property
    def healthy_seconds(self) -> float: ...

    async def run(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Loop:
    """A worker that is a coroutine function."""

    start: Callable[[], Awaitable[None]]
    healthy_seconds: float = _HEALTHY_SECONDS

    async def run(self) -> None:
        await self.start()


class Supervisor:
    """Owns one task for each worker."""

    def __init__(
        self,
        workers: Mapping[str, Worker],
        states: StateChanges,
        *,
        excused: Callable[[], bool] = lambda: False,
    ) -> None:
        """`excused()`: the database is away, which has been said and which is why workers fail."""
        self._workers = workers
        self._states = states
        self._excused = excused
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        for name, worker in self._workers.items():
            self._tasks.append(asyncio.create_task(self._keep_running(name, worker), name=name))

    async def stop(self) -> None:
        """Cancel the workers and wait until they have ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def _keep_running(self, name: str, worker: Worker) -> None:
        loop = asyncio.get_running_loop()
        delay = _FIRST_DELAY_SECONDS
        failing_since: float | None = None  # excluding excused time
        while True:
            started = loop.time()
            healthy = loop.call_later(worker.healthy_seconds, self._works, name)
            try:
                await worker.run()
                error: Exception = RuntimeError("it ended")
            except Exception as failure:
                error = failure
            finally:
                healthy.cancel()
            logger.debug("the background worker %r restarts in %.1f s: %s", name, delay, reason(error))
            if loop.time() - started > _HEALTHY_SECONDS:
                delay = _FIRST_DELAY_SECONDS
            if self._excused():
                failing_since = None
            else:
                if failing_since is None or loop.time() - started > worker.healthy_seconds:
                    failing_since = loop.time()
                self._fails(name, error, loop.time() - failing_since)
            del error
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))  # noqa: S311
            delay = min(delay * 2, _MAX_DELAY_SECONDS)

    def _fails(self, name: str, error: Exception, lasted: float) -> None:
        what = f"the background worker {name!r} fails, and is started again"
        report_failure(self._states, _KIND, name, what, error, lasted=lasted)

    def _works(self, name: str) -> None:
        self._states.ends(_KIND, name, f"the background worker {name!r} works again")
