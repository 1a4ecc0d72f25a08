"""Ticks the schedules whose time has come (J2)."""

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta

from broker.runtime.core import Core
from broker.runtime.fair_turns import FairTurns, Turn
from broker.runtime.next_due import NextDue
from broker.runtime.schedule_ticker import ScheduleTicker
from broker.runtime.turn_counts import TurnCounts

AT_ONCE = 3  # schedules that tick at the same time, each with a connection to the database
LONG_SECONDS = (
    0.1  # projects whose ticks take so long share the turns of one, and leave the last free one to others
)
MOST_CHARGED_SECONDS = 2.0  # for a turn
BUSY_SECONDS = 1.0  # of ticks without a break, after which a project is behind with them
_LOOK = timedelta(seconds=1)  # how soon a process notices what another one has made, or left
_NOT_YET_SECONDS = 0.02  # until another process, which has locked what is due, may be done with it
_FIND_SECONDS = 0.02  # between two queries for projects with due schedules, while there are ticks
_FIND_PART = 10  # and so many times what a query took
_LONG = ""  # in place of a project
_MAX_LONG = 10_000


@dataclass(slots=True)
class _Asking:
    """A project that waits for a turn `since` then.  It has had due schedules without a break `busy_since` then."""

    project: str
    since: float
    busy_since: float


class ScheduleWorker:
    """Every process has one; of a schedule one of them takes what is due, while the others pass it by.

    Projects take turns, a schedule each and one at a time: thousands that are due delay no other project's ticks.
    """

    healthy_seconds = 30.0

    def __init__(self, core: Core, ticker: ScheduleTicker, next_tick: NextDue) -> None:
        self._clock = core.clock
        self._ticker = ticker
        self._next_tick = next_tick
        self._counts = TurnCounts(core.counters, "schedule")
        # While others use the process, a project that is behind with its ticks leaves half of the time to them.
        self._company = core.company
        self._turns = FairTurns[_Asking](AT_ONCE, long=LONG_SECONDS, most=MOST_CHARGED_SECONDS)
        self._known: set[str] = set()  # projects that wait for a turn, or have one
        self._long: set[str] = set()  # projects whose last tick took long
        self._left: dict[str, float] = {}  # projects whose due schedules others have locked, until then
        self._find_at = 0.0

    async def run(self) -> None:
        """Until an error, which is the supervisor's."""
        while True:
            until = await self.run_once()
            await self._next_tick.wait(until, self._clock.now())

    async def run_once(self) -> datetime:
        """Tick all that is due.  Returns when to look again."""
        first, now = await self._ticker.next_at(), self._clock.now()
        if first is not None and first <= now:
            await self._tick_all()
            first, now = await self._ticker.next_at(), self._clock.now()
        if first is None or first > now + _LOOK:
            return now + _LOOK
        return max(first, now + timedelta(seconds=_NOT_YET_SECONDS)) if first <= now else first

    async def _tick_all(self) -> None:
        under_way: set[asyncio.Task[None]] = set()
        self._left.clear()
        try:
            while True:
                await self._find(at_once=not under_way)
                while (turn := self._turns.begin()) is not None:
                    under_way.add(asyncio.ensure_future(self._have_turn(turn)))
                if not under_way:
                    return
                done, under_way = await asyncio.wait(
                    under_way, timeout=_FIND_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    task.result()
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _find(self, *, at_once: bool) -> None:
        """Let projects that have come to have due schedules wait for a turn; `at_once`: there is nothing else."""
        time = asyncio.get_running_loop().time
        began = time()
        if not at_once and began < self._find_at:
            return
        self._left = {project: until for project, until in self._left.items() if began < until}
        for project in await self._ticker.find_due_projects(known={*self._known, *self._left}):
            self._ask(project)
        ended = time()
        self._find_at = ended + max(_FIND_SECONDS, _FIND_PART * (ended - began))

    def _learn(self, project: str, *, is_long: bool) -> None:
        if not is_long:
            self._long.discard(project)
            return
        if len(self._long) >= _MAX_LONG:
            self._long.clear()
        self._long.add(project)

    def _ask(self, project: str, *, busy_since: float | None = None) -> None:
        now = asyncio.get_running_loop().time()
        self._known.add(project)
        path = (_LONG, project) if project in self._long else (project, "")
        self._turns.ask(path, _Asking(project, now, now if busy_since is None else busy_since))

    async def _have_turn(self, turn: Turn[_Asking]) -> None:
        time, project = asyncio.get_running_loop().time, turn.item.project
        began = time()
        held, more = 0.0, False
        try:
            more = await self._ticker.tick_due(project) is not None
            held = time() - began
            self._learn(project, is_long=held >= LONG_SECONDS)
            if more and began - turn.item.busy_since > BUSY_SECONDS:
                await self._rest(project, held)
        finally:
            self._turns.end(turn, held)
            if more:
                self._counts.ended(project, waited=began - turn.item.since, held=held)
                self._ask(project, busy_since=turn.item.busy_since)
            else:
                self._known.discard(project)
                self._left[project] = time() + _NOT_YET_SECONDS

    async def _rest(self, project: str, seconds: float) -> None:
        """A project that is behind with its ticks leaves as much time to others, if any use the process.

        A few ticks now and then are no use of the process that others would have to be bounded for.
        """
        self._company.had_turn(project)
        if self._company.is_there():
            await asyncio.sleep(seconds)
