"""Turns of the event loop, for long steps (M1).

A small call needs the loop about ten times, and each time waits for everything that is ready by then.  So work that
needs the loop for long (a large body, a response with a thousand messages) is cut into steps of a millisecond or
less, and asks for a turn before each.  After a step the loop runs several passes for everything else: the longer
the step was, the more passes, and fewer if they have nothing to do.  The next turn is decided by the cost of each
project's steps so far (fair_turns.py).  A step does not wait if there was no other one a moment ago.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Generator, Hashable
from math import inf
from time import perf_counter
from typing import Generic, TypeVar

from broker.fairness.fair_turns import FairTurns, TurnFor

COST_OF_TURN = 50_000  # a step is followed by a turn of the loop for each of these: bytes, some 2 ns each
MOST_TURNS = 16  # after a step, whatever it did cost; a small call needs ten or fewer
_MOST_IDLE = 2  # of these, one after the other, in which there was nothing to do: then nobody waits for the loop
_IDLE_SECONDS = 30e-6  # what a turn of the loop takes by itself, at the most

T = TypeVar("T")
R = TypeVar("R")


class SpacedSteps(Generic[T]):
    """The order and times of steps: one at a time, with turns of the loop between them.

    It has no clock and no tasks.
    """

    def __init__(self) -> None:
        self._turns: FairTurns[TurnFor[tuple[T, int]]] = FairTurns(1, long=inf)
        self._turn: TurnFor[tuple[T, int]] | None = None  # whose step was the last
        self._idle = 0
        self._left = 0  # turns of the loop until there may be a step

    @property
    def resting(self) -> bool:
        """Whether a step was done.

        Then the next one waits, and `passed` has to be called after each turn of the loop.
        """
        return self._turn is not None

    def ask(self, who: Hashable, cost: int, item: T) -> T | None:
        """Adds a step of `who`, behind its others.  Returns the item if the step may be done at once."""
        self._turns.ask(TurnFor((who,), item=(item, cost)))
        return self._begin() if self._turn is None else None

    def passed(self, *, idle: bool) -> T | None:
        """A turn of the loop has passed, with something else to do or not.  Whose step may be done."""
        if self._turn is None:
            return None
        self._left -= 1
        self._idle = self._idle + 1 if idle else 0
        if self._left > 0 and self._idle < _MOST_IDLE:
            return None
        self._turns.end(self._turn, self._turn.item[1])
        return self._begin()

    def _begin(self) -> T | None:
        self._turn = self._turns.begin()
        if self._turn is None:
            return None
        item, cost = self._turn.item
        self._left, self._idle = turns_after(cost), 0
        return item


def turns_after(cost: int) -> int:
    """Returns how many turns of the loop follow a step."""
    return min(max(cost // COST_OF_TURN, 1), MOST_TURNS)


class LoopTurns:
    """The turns of the event loop of a process.

    The steps are shared by `who`: a project, or another tenant.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        """`clock`: in seconds, finer than the loop's own, which counts milliseconds."""
        self._clock = clock
        self._steps: SpacedSteps[Callable[[], object]] = SpacedSteps()
        self._checked_at = 0.0
        self._waiting: Counter[Hashable] = Counter()

    async def run(self, who: Hashable, steps: Generator[int, None, R]) -> R:
        """Do the steps, each when its turn has come; what they return.  They say before each what it will cost."""
        try:
            while True:
                cost = next(steps)
                if not self.begin(who, cost):
                    await self.wait(who, cost)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def begin(self, who: Hashable, cost: int) -> bool:
        """Returns whether the step may be done at once, since no other waits; if so it counts."""
        if self._steps.resting or self._steps.ask(who, cost, _nothing) is None:
            return False
        self._check_after()
        return True

    async def turn(self, who: Hashable, cost: int) -> None:
        """Wait until the step may be done, if there is anybody to wait for."""
        if not self.begin(who, cost):
            await self.wait(who, cost)

    async def wait(self, who: Hashable, cost: int) -> None:
        """Waits until the step may be done, which is then at once."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def report() -> None:
            if not turn.done():  # cancelled meanwhile
                turn.set_result(None)

        self._waiting[who] += 1
        try:
            self.call(who, cost, report)
            await turn
        finally:
            self._waiting[who] -= 1
            if not self._waiting[who]:
                del self._waiting[who]

    def waiting(self, who: Hashable) -> int:
        """Returns how many steps of `who` wait for their turn."""
        return self._waiting.get(who, 0)

    def call(self, who: Hashable, cost: int, step: Callable[[], object]) -> None:
        """Have `step` called soon, when its turn has come."""
        item = self._steps.ask(who, cost, step)
        if item is not None:
            asyncio.get_running_loop().call_soon(item)
            self._check_after()

    def _check_after(self) -> None:
        self._checked_at = self._clock()
        asyncio.get_running_loop().call_soon(self._passed)

    def _passed(self) -> None:
        """Counts a turn of the loop, and does the next step if its turn has come."""
        step = self._steps.passed(idle=self._clock() - self._checked_at < _IDLE_SECONDS)
        if step is not None:
            asyncio.get_running_loop().call_soon(step)
        if self._steps.resting:
            self._check_after()


def _nothing() -> None:
    """Does nothing: the caller does the step itself."""
