"""Delays refusals, so that a client that immediately calls again costs others little (M1).

A refusal is cheap, also for the caller: without a delay, 64 connections that call again at once keep an event loop
so busy that a call of another client waits for a round of them at each of its steps (docs/decisions/0024).
Refusals because of a quota have a slow pace; all errors have a pace that only a flood of them reaches.
"""

import asyncio
import random
import time
from collections.abc import Callable

REFUSALS_A_SECOND = 100.0  # of a project, by a process
AT_ONCE = 10  # refusals that need not wait, after a pause
ERRORS_A_SECOND, ERRORS_AT_ONCE = 1_000.0, 200  # some tenth of an event loop; more than one caller alone ever has
_MOST_KNOWN = 10_000  # project names cost nothing
MOST_SECONDS = 1.0  # that one waits: so many callers have no pace, and their connections have bounds of their own


class RefusalPace:
    """The pace of refusals in one process.  Each has the name of what it counts for, mostly a project."""

    def __init__(
        self,
        *,
        a_second: float = REFUSALS_A_SECOND,
        at_once: int = AT_ONCE,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        """`at_once`: refusals that need not wait, after a pause."""
        self._seconds, self._at_once = 1 / a_second, at_once
        self._ticks = ticks
        self._next: dict[str, float] = {}  # when a refusal of a project would be in time

    async def wait(self, project: str) -> None:
        """Waits until a refusal may be answered."""
        if seconds := self.delay(project):
            await asyncio.sleep(seconds)

    def delay(self, project: str) -> float:
        """Counts one more refusal and returns how many seconds it has to wait."""
        now = self._ticks()
        due = max(self._next.get(project, 0.0), now - self._at_once * self._seconds)
        if due - now > MOST_SECONDS:
            return random.uniform(MOST_SECONDS / 2, MOST_SECONDS)  # noqa: S311  # lest they come back at once
        if len(self._next) >= _MOST_KNOWN:
            self.forget()
        self._next[project] = due + self._seconds
        return max(due - now, 0.0)

    def forget(self) -> None:
        """Projects that were not refused of late."""
        now = self._ticks()
        self._next = {project: due for project, due in self._next.items() if due > now}
