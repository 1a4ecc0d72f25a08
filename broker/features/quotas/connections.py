"""Counts the connections of projects: open streams, and pulls that wait for messages (E4).

A stream stays with one process, so the limit applies to all processes together.  With its heartbeat each process
reports its number for each project with a limit, and reads those of the others.  Until the next heartbeat it opens
no more connections than its share of the rest (all of the rest if it is alone).  Further connections wait for the
next heartbeats, while there is capacity.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

from broker.fairness.refusal_pace import RefusalPace
from broker.features.quotas.quota import exceeded

_REPORT_SECONDS = 2.5  # without a heartbeat in it nothing is known, and nothing is refused: the database is away
_PATIENCE_SECONDS = 5.0  # by then the parts of what is left have come to all of it
_RETRY_SECONDS = 1.0  # something may have been closed


class Connection:
    """A connection that is counted until it is closed.  Closing it again does nothing."""

    __slots__ = ("_of", "_project")

    def __init__(self, of: "Connections", project: str) -> None:
        self._of: Connections | None = of
        self._project = project

    def close(self) -> None:
        if self._of is not None:
            self._of.closed(self._project)
            self._of = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, _type: type[BaseException] | None, _error: object, _traceback: TracebackType | None) -> None:
        self.close()


class Connections:
    """The SharedCounts of connections: those of this process, and what it knows of the others."""

    def __init__(self, limit_of: Callable[[str], int | None], *, refusals: RefusalPace | None = None) -> None:
        """`limit_of`: how many connections a project may have (None: any number)."""
        self._limit_of = limit_of
        self._refusals = refusals or RefusalPace()
        self._open: Counter[str] = Counter()  # of every project: a limit may be set while they are open
        self._reported: Mapping[str, int] = {}
        self._others: Counter[str] = Counter()
        self._processes = 1
        self._heard = asyncio.Event()  # another one after each heartbeat

    async def open(self, project: str) -> Connection:
        """Count one more; the caller closes it.  Raises QuotaExceeded, soon if there are as many as may be."""
        limit = self._limit_of(project)
        if limit is not None:
            await self._wait_for_capacity(project, limit)
        self._open[project] += 1
        return Connection(self, project)

    def closed(self, project: str) -> None:
        self._open[project] -= 1
        if not self._open[project]:
            del self._open[project]

    def count(self, project: str) -> int:
        """Counts the connections here and, if they are limited, in other processes, as of the last heartbeat."""
        return self._open[project] + self._others[project]

    async def _wait_for_capacity(self, project: str, limit: int) -> None:
        deadline = asyncio.get_running_loop().time() + _PATIENCE_SECONDS
        while self._open[project] >= self._part(project, limit):
            used = self.count(project)
            if used >= limit or asyncio.get_running_loop().time() > deadline:
                await self._refusals.wait(project)
                raise exceeded(
                    "connections", project=project, limit=limit, usage=used, retry_seconds=_RETRY_SECONDS
                )
            try:
                async with asyncio.timeout(_REPORT_SECONDS):
                    await self._heard.wait()
            except TimeoutError:
                return

    def _part(self, project: str, limit: int) -> int:
        """Returns how many connections this process may have until the next heartbeat."""
        reported = self._reported.get(project, 0)
        left = limit - self._others[project] - reported
        return reported + max(0, -(-left // self._processes))

    # --- heartbeats --------------------------------------------------------------------------------------

    def report(self) -> dict[str, int]:
        """Returns the counts for the other processes."""
        return {project: count for project, count in self._open.items() if self._limit_of(project) is not None}

    def heard(self, reported: Mapping[str, int], others: Sequence[Mapping[str, int]]) -> None:
        """Takes the counts of a heartbeat.

        The other processes know `reported` of this one; each of them has reported one of `others`.
        """
        self._reported = reported
        self._others = sum((Counter(other) for other in others), Counter())
        self._processes = 1 + len(others)
        self._heard.set()
        self._heard = asyncio.Event()
