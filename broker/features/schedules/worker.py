"""Runs the ticks of due schedules (J2)."""

import asyncio
from datetime import datetime, timedelta

from broker.core.context.core import Core
from broker.core.process.next_due import NextDue
from broker.fairness.turn_counts import TurnCounts
from broker.fairness.turns import Turns
from broker.features.schedules.ticker import ScheduleTicker

AT_ONCE = 3  # schedules that tick at the same time, each with a connection to the database
LONG_SECONDS = (
    0.1  # projects whose ticks take so long share the turns of one, and leave the last free one to others
)
MOST_CHARGED_SECONDS = 2.0  # for a turn
BUSY_SECONDS = 1.0  # of ticks without a break, after which a project is behind with them
_RECOVERY_INTERVAL = timedelta(seconds=1)  # how soon a process notices what another one has made, or left
_NOT_YET_SECONDS = 0.02  # until another process, which has locked what is due, may be done with it
_FIND_SECONDS = 0.02  # between two queries for projects with due schedules, while there are ticks
_FIND_PART = 10  # and so many times what a query took
_LONG = ""  # in place of a project
_MAX_LONG = 10_000


class ScheduleWorker:
    """The worker for due schedules in a process.  A schedule is handled by one process, while the others skip it.

    Projects take turns, a schedule each and one at a time: thousands that are due delay no other project's ticks.
    """

    healthy_seconds = 30.0

    def __init__(self, core: Core, ticker: ScheduleTicker, next_tick: NextDue) -> None:
        self._clock = core.clock
        self.ticker = ticker
        self._next_tick = next_tick
        self._counts = TurnCounts(core.counters, "schedule")
        # While others use the process, a project that is behind with its ticks leaves half of the time to them.
        self._tenants = core.tenants
        self._turns = Turns(AT_ONCE, long_seconds=LONG_SECONDS, max_charged_seconds=MOST_CHARGED_SECONDS)
        self._known: set[str] = set()  # projects that have a task, which waits for turns
        self._long: set[str] = set()  # projects whose last tick took long
        self._left: dict[str, float] = {}  # projects whose due schedules others have locked, until then
        self._find_at = 0.0

    async def run(self) -> None:
        """Makes due ticks until an error, which the supervisor handles."""
        while True:
            until = await self.run_once()
            await self._next_tick.wait(until, self._clock.now())

    async def run_once(self) -> datetime:
        """Tick all that is due.  Returns when to look again."""
        first, now = await self.ticker.next_at(), self._clock.now()
        if first is not None and first <= now:
            await self._tick_all()
            first, now = await self.ticker.next_at(), self._clock.now()
        if first is None or first > now + _RECOVERY_INTERVAL:
            return now + _RECOVERY_INTERVAL
        return max(first, now + timedelta(seconds=_NOT_YET_SECONDS)) if first <= now else first

    async def _tick_all(self) -> None:
        tasks: set[asyncio.Task[None]] = set()
        self._left.clear()
        try:
            while True:
                found = await self._find(at_once=not tasks)
                for project in sorted(found, key=self._long.__contains__):  # quick ones take the first slots
                    self._known.add(project)
                    tasks.add(asyncio.ensure_future(self._tick_project(project)))
                if not tasks:
                    return
                seconds = max(self._find_at - asyncio.get_running_loop().time(), 0.0)
                done, tasks = await asyncio.wait(tasks, timeout=seconds)
                for task in done:
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._known.clear()

    async def _find(self, *, at_once: bool) -> list[str]:
        """Projects that have come to have due schedules; none before it is time to look, unless `at_once`."""
        time = asyncio.get_running_loop().time
        began = time()
        if not at_once and began < self._find_at:
            return []
        self._left = {project: until for project, until in self._left.items() if began < until}
        found = await self.ticker.find_due_projects(known={*self._known, *self._left})
        ended = time()
        self._find_at = ended + max(_FIND_SECONDS, _FIND_PART * (ended - began))
        return found

    def _learn(self, project: str, *, is_long: bool) -> None:
        if not is_long:
            self._long.discard(project)
            return
        if len(self._long) >= _MAX_LONG:
            self._long.clear()
        self._long.add(project)

    async def _tick_project(self, project: str) -> None:
        """Tick what is due of the project, a schedule in each turn.

        A project that is behind with its ticks leaves as much time to others, if any use the process.  A few ticks
        now and then are no use of the process that others would have to be bounded for.
        """
        time = asyncio.get_running_loop().time
        busy_since = time()
        more = True
        while more:
            path = (_LONG, project) if project in self._long else (project, "")
            async with self._turns.of(project, path) as slot:
                is_behind = time() - busy_since > BUSY_SECONDS
                more = await self.ticker.tick_due(project) is not None
                self._learn(project, is_long=slot.held >= LONG_SECONDS)
                if more:
                    self._counts.ended(project, waited=slot.waited, held=slot.held)
                if more and is_behind:
                    self._tenants.note_turn(project)
                    slot.pause_seconds = slot.held if self._tenants.is_contended() else 0.0
            if slot.pause_seconds:
                await asyncio.sleep(slot.pause_seconds)
        self._known.discard(project)
        self._left[project] = time() + _NOT_YET_SECONDS
