"""Refusals for want of a quota, at a pace: who calls again at once, whatever he hears, costs others little (M1).

A refusal is cheap, for the caller too: without a pace 64 connections that call again at once keep an event loop so
busy that a neighbour's call waits for a round of them at each of its steps (docs/decisions/0024).
"""

import asyncio
import random
import time
from collections.abc import Callable

REFUSALS_A_SECOND = 100.0  # of a project, by a process
AT_ONCE = 10  # refusals that need not wait, after a pause
MOST_SECONDS = 1.0  # that one waits: so many callers have no pace, and their connections have bounds of their own


class RefusalPace:
    """Of one process."""

    def __init__(self, *, ticks: Callable[[], float] = time.monotonic) -> None:
        self._ticks = ticks
        self._next: dict[str, float] = {}  # when a refusal of a project would be in time

    async def wait(self, project: str) -> None:
        """Until a refusal may be told."""
        if seconds := self.delay(project):
            await asyncio.sleep(seconds)

    def delay(self, project: str) -> float:
        """Of one more refusal, which is counted; in seconds."""
        now = self._ticks()
        due = max(self._next.get(project, 0.0), now - AT_ONCE / REFUSALS_A_SECOND)
        if due - now > MOST_SECONDS:
            return random.uniform(MOST_SECONDS / 2, MOST_SECONDS)  # noqa: S311  # lest they come back at once
        self._next[project] = due + 1 / REFUSALS_A_SECOND
        return max(due - now, 0.0)

    def forget(self) -> None:
        """Projects that were not refused of late."""
        now = self._ticks()
        self._next = {project: due for project, due in self._next.items() if due > now}
