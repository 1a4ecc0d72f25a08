"""Waits for a fair turn: the one way in which a call or a task awaits something that projects share (M1).

    turns = Turns(slots=8, long_seconds=0.1, counts=TurnCounts(counters, "resource"))
    async with turns.of("projects/p"):    # waits, and counts how long it waited and how long the turn lasted
        ...

`fair_turns.py` decides whose turn is next.  A `Slot` takes part once: it asks, waits, has its turn, and ends.
However it ends (cancelled while it waits, at the moment at which its turn comes, or during its turn; refused; given
up by other code), it either withdraws or ends its turn, so that no slot stays taken and no turn is lost.

Four users of the rule do not await a slot, because their waiting work is not a task:

* Claims (`claim_scheduler.py`): a group in the queue costs no task, and what it claims for is decided when its turn
  comes, by a task that serves one group after the other.
* Dead letters and delayed messages that become due (`features/dead_letters/forwarding/dead_letter_forwarder.py`,
  `features/delayed/worker.py`): one task works through them, and asks which batch is next.
* The event loop (`loop_turns.py`): a turn ends after a number of passes of the loop, whatever its owner does.
* Push requests (`core/pushing/turns.py`): the limited resource is capacity, and an endpoint in the queue holds
  messages with deadlines, not a task.
"""

import asyncio
from collections.abc import Callable
from math import inf
from time import perf_counter
from types import TracebackType

from broker.fairness.fair_turns import FairTurns, Path, Turn
from broker.fairness.tenants import Tenants
from broker.fairness.turn_counts import TurnCounts
from broker.model.errors import Unavailable


class Turns:
    """Turns of one kind in one process."""

    def __init__(
        self,
        slots: int,
        *,
        long_seconds: float,
        max_charged_seconds: float = inf,
        max_wait_seconds: float | None = None,
        refusal: str = "",
        tenants: Tenants | None = None,
        contended_slots: int | None = None,
        counts: TurnCounts | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """`slots`, `long_seconds`, `max_charged_seconds`, `tenants` and `contended_slots` are those of FairTurns;
        `clock`: in seconds.

        A caller that waits longer than `max_wait_seconds` gets Unavailable with the text `refusal`.
        """
        self.rule = FairTurns[Slot](
            slots,
            long=long_seconds,
            max_charged=max_charged_seconds,
            tenants=tenants,
            contended_slots=contended_slots,
        )
        self.counts = counts
        self.clock = clock
        self.max_wait_seconds = max_wait_seconds
        self.refusal = refusal

    def __len__(self) -> int:
        """Returns how many slots wait."""
        return len(self.rule)

    @property
    def under_way(self) -> int:
        return self.rule.under_way

    def of(self, project: str, path: Path | None = None) -> "Slot":
        """A turn of a project ("projects/p"), which is counted as the project's.

        `path`: where it waits, if that is not with everything else of the project.
        """
        return Slot(self, project, path or (project,))

    def begin_waiting(self) -> None:
        """Begin the turns of slots that wait, as many as may have one now."""
        while (slot := self.rule.begin()) is not None:
            slot.began()


class Slot(Turn):
    """A turn, from asking for it to its end: `async with`, or `ask`, `wait` and `end`, each at most once."""

    __slots__ = ("_asked_at", "_began_at", "_is_over", "_ready", "_turns", "pause_seconds", "project")

    def __init__(self, turns: Turns, project: str, path: Path) -> None:
        self.path, self.begun, self.charged = path, False, ()
        self.project = project
        # After the end of the turn the slot stays taken for so long, which nobody is charged for.
        self.pause_seconds = 0.0
        self._turns = turns
        self._ready: asyncio.Future[None] | None = None  # while it waits
        self._is_over = False

    async def __aenter__(self) -> "Slot":
        if not self.ask():
            await self.wait()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()

    @property
    def waited(self) -> float:
        """The seconds from asking to the beginning of the turn."""
        return self._began_at - self._asked_at

    @property
    def held(self) -> float:
        """The seconds since the turn began."""
        return self._turns.clock() - self._began_at

    def ask(self) -> bool:
        """Ask for the turn.  Returns whether it has begun; otherwise `wait` for it."""
        rule = self._turns.rule
        self._asked_at = self._began_at = self._turns.clock()
        if not rule.begin_alone(self):
            rule.ask(self)
            self._turns.begin_waiting()
        return self.begun

    async def wait(self) -> None:
        """Wait until the turn begins.

        Raises Unavailable after the longest wait, and what `give_up` was called with.  After an error, cancellation
        included, the slot is not used any more.
        """
        if self.begun:
            return
        loop, seconds = asyncio.get_running_loop(), self._turns.max_wait_seconds
        self._ready = loop.create_future()
        timer = None if seconds is None else loop.call_later(seconds, self._refuse)
        try:
            await self._ready
        except BaseException:
            self._leave()
            raise
        finally:
            self._ready = None
            if timer is not None:
                timer.cancel()

    def give_up(self, error: BaseException) -> None:
        """Have `wait` raise the error, unless the turn has begun."""
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(error)

    def began(self) -> None:
        """Note that the turn has begun; called by `Turns`."""
        self._began_at = self._turns.clock()
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)

    def end(self) -> None:
        """End the turn; a second call does nothing."""
        if self._is_over:
            return
        self._is_over = True
        held = self._turns.clock() - self._began_at
        if (counts := self._turns.counts) is not None:
            counts.ended(self.project, waited=self._began_at - self._asked_at, held=held)
        if self.pause_seconds:
            asyncio.get_running_loop().call_later(self.pause_seconds, self._free, held)
        elif self._turns.rule.end(self, held):
            self._turns.begin_waiting()

    def _free(self, cost: float) -> None:
        if self._turns.rule.end(self, cost):
            self._turns.begin_waiting()

    def _leave(self) -> None:
        """Leave without having used the turn, though it may have begun at this moment."""
        turns = self._turns
        self._is_over = True
        if turns.counts is not None:
            turns.counts.waited(self.project, turns.clock() - self._asked_at)
        if self.begun:
            self._free(0.0)
        else:
            turns.rule.withdraw(self)
            turns.begin_waiting()

    def _refuse(self) -> None:
        self.give_up(Unavailable(self._turns.refusal))
