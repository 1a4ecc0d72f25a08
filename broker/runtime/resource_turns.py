"""Turns of calls that are not hot (topics, subscriptions, snapshots, …): a few at a time, shared by project (M1).

As many as the database has connections for them.  Who waits is next when his project has used least of that time
(fair_turns.py); and a project may have no more of them under way than its share (fair_stock.py).

These calls also use the event loop, which hot calls of other projects need at the same time and which no queue
divides.  So while other projects use the process, a turn ends only after a pause as long as its call.  Sequential
calls of a project do not wait for the pause, because the project has another turn.  Concurrent calls use the loop
for half of the time at most.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

from broker.domain.errors import DeadlineExceeded, Unavailable
from broker.domain.fair_stock import FairStock
from broker.domain.slow_readers import slow_readers
from broker.runtime.company import Company
from broker.runtime.fair_turns import FairTurns, Turn
from broker.runtime.turn_counts import TurnCounts
from broker.telemetry.metrics.counters import Counters
from broker.telemetry.spent import spending

AT_ONCE = 8  # connections of the pool of such calls (store/driver/database.py)
LOOKING_AT_ONCE = 1  # of calls that read up to 10,000 messages: publishes and pulls need the connections
MAX_UNDER_WAY = 200  # with those that wait
LONG_SECONDS = 0.1  # a project whose calls take so long leaves the last free turn to others
MOST_CHARGED_SECONDS = 1.0  # for a call
MOST_PAUSE_SECONDS = 0.1  # after a call, while other projects are there
LONGEST_SECONDS = 20.0  # of a call, its wait included; past it the outcome is unknown


class HasRoom(Protocol):
    def __call__(self, resource: str, *, is_short: bool = False) -> bool: ...


class ResourceTurns:
    """Of one process."""

    def __init__(
        self,
        *,
        at_once: int = AT_ONCE,
        max_under_way: int = MAX_UNDER_WAY,
        counts: TurnCounts | None = None,
        company: Company | None = None,
        has_room: HasRoom | None = None,
    ) -> None:
        """`has_room(project, is_short=…)`: whether more answers of a project may be made; None: always."""
        self._has_room = has_room
        self._company = company
        self._counts = counts or TurnCounts(Counters(), "resource")
        self._stock = FairStock(max_under_way)
        self._turns = FairTurns[asyncio.Future[Any]](
            at_once, long=LONG_SECONDS, most=MOST_CHARGED_SECONDS, company=company
        )

    @asynccontextmanager
    async def of(
        self, project: str, *, hung_up: Callable[[], Awaitable[None]] | None = None, is_short: bool = False
    ) -> AsyncIterator[None]:
        """A turn of a project's ("projects/p"), or of a caller that is of none; begins when it has one.

        `hung_up()` completes when the caller has gone; it is only awaited while the call waits for its turn.
        `is_short`: its answer is not large, or is read while it is made.

        Raises Unavailable if there are too many, if answers that nobody reads have taken the project's share of
        memory, or after LONGEST_SECONDS; DeadlineExceeded, which nobody reads, if the caller goes.  Unless its turn
        had come nothing was done then.
        """
        over = self._stock.take((project,))
        if over is not None:
            # Without numbers: the log tells of what differs one by one.
            whose = f" of {over.path[-1]}" if over.path else ""
            raise Unavailable(f"Too many calls about resources{whose} are under way; try again.")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                turn, waited = await self._waited_for(project, hung_up)
                began = loop.time()
                try:
                    self._check_room(project, is_short=is_short)
                    yield
                finally:
                    held = loop.time() - began
                    self._counts.ended(project, waited=waited, held=held)
                    if self._company is not None and self._company.is_there():
                        loop.call_later(min(held, MOST_PAUSE_SECONDS), self._end, turn, held)
                    else:
                        self._end(turn, held)
        except TimeoutError:
            raise Unavailable("The database does not answer; the call may or may not have worked.") from None
        finally:
            self._stock.give_back((project,))

    def _end(self, turn: Turn[Any], held: float) -> None:
        self._turns.end(turn, held)
        self._begin()

    def _check_room(self, project: str, *, is_short: bool) -> None:
        if self._has_room is not None and not self._has_room(project, is_short=is_short):
            raise slow_readers(project)

    async def _waited_for(
        self, project: str, hung_up: Callable[[], Awaitable[None]] | None
    ) -> tuple[Turn[Any], float]:
        """A turn, and the seconds that it was waited for."""
        loop = asyncio.get_running_loop()
        asked = loop.time()
        try:
            with spending("turns"):
                return await self._turn(project, hung_up), loop.time() - asked
        except BaseException:
            self._counts.waited(project, loop.time() - asked)
            raise

    async def _turn(self, project: str, hung_up: Callable[[], Awaitable[None]] | None) -> Turn[Any]:
        begun: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._turns.ask((project,), begun)
        self._begin()
        try:
            if hung_up is not None and not begun.done():
                await _until_gone(begun, hung_up)
            return await begun  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            if begun.done() and not begun.cancelled():  # both at once
                self._end(begun.result(), 0.0)
            raise

    def _begin(self) -> None:
        while (turn := self._turns.begin()) is not None:
            if turn.item.done():  # its caller has left
                self._turns.end(turn, 0.0)
            else:
                turn.item.set_result(turn)


async def _until_gone(begun: asyncio.Future[Any], hung_up: Callable[[], Awaitable[None]]) -> None:
    """Until it has begun.  Raises DeadlineExceeded if the caller goes first; then it will not begin."""
    gone = asyncio.ensure_future(hung_up())
    try:
        await asyncio.wait((begun, gone), return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        if not begun.done():
            begun.cancel()
        raise
    finally:
        gone.cancel()
    if not begun.done():
        begun.cancel()
        raise DeadlineExceeded("The caller has gone.")
