"""Turns of calls about resources (topics, subscriptions, snapshots, …): a few at a time, shared by project (M1).

There are as many turns as the database has connections for such calls (turns.py), and a project may not have more
calls in progress than its share of the capacity (shared_capacity.py).

These calls also use the event loop, which hot calls of other projects need at the same time and which no queue
divides.  So while other projects use the process, a turn ends only after a pause as long as its call.  Sequential
calls of a project do not wait for the pause, because the project has another turn.  Concurrent calls use the loop
for half of the time at most.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from broker.fairness.shared_capacity import SharedCapacity
from broker.fairness.slow_readers import slow_readers
from broker.fairness.tenants import Tenants
from broker.fairness.turn_counts import TurnCounts
from broker.fairness.turns import Slot, Turns
from broker.model.errors import DeadlineExceeded, Unavailable
from broker.observability.timing import timed

AT_ONCE = 8  # connections of the pool of such calls (db/driver/database.py)
INSPECTIONS_AT_ONCE = 1  # of calls that read up to 10,000 messages: publishes and pulls need the connections
MAX_UNDER_WAY = 200  # with those that wait
LONG_SECONDS = 0.1  # a project whose calls take so long leaves the last free turn to others
MOST_CHARGED_SECONDS = 1.0  # for a call
MOST_PAUSE_SECONDS = 0.1  # after a call, while other projects are there
LONGEST_SECONDS = 20.0  # of a call, its wait included; past it the outcome is unknown


class HasCapacity(Protocol):
    def __call__(self, resource: str, *, is_short: bool = False) -> bool: ...


class ResourceTurns:
    """Turns and capacity for the calls of one process that are not hot."""

    def __init__(
        self,
        *,
        at_once: int = AT_ONCE,
        max_under_way: int = MAX_UNDER_WAY,
        counts: TurnCounts | None = None,
        tenants: Tenants | None = None,
        has_capacity: HasCapacity | None = None,
    ) -> None:
        """`has_capacity(project, is_short=…)`: whether more answers of a project may be made; None: always."""
        self._has_capacity = has_capacity
        self._tenants = tenants
        self._capacity = SharedCapacity(max_under_way)
        self._turns = Turns(
            at_once,
            long_seconds=LONG_SECONDS,
            max_charged_seconds=MOST_CHARGED_SECONDS,
            tenants=tenants,
            counts=counts,
        )

    @asynccontextmanager
    async def of(
        self, project: str, *, hung_up: Callable[[], Awaitable[None]] | None = None, is_short: bool = False
    ) -> AsyncIterator[None]:
        """Waits for a turn of a project ("projects/p"), or of a caller without one, and has it within the block.

        `hung_up()` completes when the caller has gone; it is only awaited while the call waits for its turn.
        `is_short`: its answer is not large, or is read while it is made.

        Raises Unavailable if there are too many calls, if answers that are not read have taken the project's part
        of the memory, or after LONGEST_SECONDS; DeadlineExceeded, which nobody reads, if the caller goes.  Unless
        the turn had begun, nothing was done then.
        """
        over = self._capacity.take((project,))
        if over is not None:
            # Without numbers: the log tells of what differs one by one.
            whose = f" of {over.path[-1]}" if over.path else ""
            raise Unavailable(f"Too many calls about resources{whose} are under way; try again.")
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                slot = self._turns.of(project)
                with timed("turns"):
                    if not slot.ask():
                        await _wait(slot, hung_up)
                try:
                    self._check_capacity(project, is_short=is_short)
                    yield
                finally:
                    if self._tenants is not None and self._tenants.is_contended():
                        slot.pause_seconds = min(slot.held, MOST_PAUSE_SECONDS)
                    slot.end()
        except TimeoutError:
            raise Unavailable("The database does not answer; the call may or may not have worked.") from None
        finally:
            self._capacity.give_back((project,))

    def _check_capacity(self, project: str, *, is_short: bool) -> None:
        if self._has_capacity is not None and not self._has_capacity(project, is_short=is_short):
            raise slow_readers(project)


async def _wait(slot: Slot, hung_up: Callable[[], Awaitable[None]] | None) -> None:
    """Wait until the turn begins.  Raises DeadlineExceeded if the caller goes first."""
    if hung_up is None:
        await slot.wait()
        return
    gone = asyncio.ensure_future(hung_up())
    gone.add_done_callback(lambda _: slot.give_up(DeadlineExceeded("The caller has gone.")))
    try:
        await slot.wait()
    finally:
        gone.cancel()
