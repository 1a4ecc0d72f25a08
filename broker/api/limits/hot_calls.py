"""Limits the small calls of a project that are in progress, while other projects use the process as well (M1).

A small call uses the event loop about ten times, and each time waits for everything that is ready by then.  If
three hundred calls of one project are in progress, a call of another project waits for all of them again and
again.  The calls that wait here wait only for calls of their own project.  Flushes lose nothing by this, because
the other calls of the project that are in progress fill them as well.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import ParamSpec

from broker.model.errors import Unavailable
from broker.model.names import project_within

AT_ONCE = 32
MAX_WAIT_SECONDS = 5.0  # see publish_coalescer

P = ParamSpec("P")


@dataclass(eq=False, slots=True)
class _Project:
    """The calls of a project: how many more may begin, and how many are under way or wait."""

    free: asyncio.Semaphore
    calls: int = field(default=0)


class HotCalls:
    """The limits on small calls of one process, of both APIs.  While there is one project they cost one check."""

    def __init__(self, is_contended: Callable[[], bool], at_once: int = AT_ONCE) -> None:
        """`is_contended()`: whether more than one project uses the process."""
        self._is_contended = is_contended
        self._at_once = at_once
        self._projects: dict[str, _Project] = {}

    def bounded(
        self, handler: Callable[P, Awaitable[bytes]], resource_of: Callable[P, str]
    ) -> Callable[P, Awaitable[bytes]]:
        """`handler`, once a call of the resource's project may begin; Unavailable if that takes too long."""

        async def call_beside_others(*call: P.args, **options: P.kwargs) -> bytes:
            name = project_within(resource_of(*call, **options))
            project = self._projects.get(name)
            if project is None:
                project = self._projects[name] = _Project(asyncio.Semaphore(self._at_once))
            project.calls += 1
            try:
                if project.free.locked():
                    await _wait(project.free, name)
                else:
                    await project.free.acquire()
                try:
                    return await handler(*call, **options)
                finally:
                    project.free.release()
            finally:
                project.calls -= 1
                if not project.calls:
                    del self._projects[name]

        def call_within_limits(*call: P.args, **options: P.kwargs) -> Awaitable[bytes]:
            return (call_beside_others if self._is_contended() else handler)(*call, **options)

        return call_within_limits


async def _wait(free: asyncio.Semaphore, project: str) -> None:
    try:
        async with asyncio.timeout(MAX_WAIT_SECONDS):
            await free.acquire()
    except TimeoutError:
        raise Unavailable(f"Too many calls of {project} are under way; try again.") from None
