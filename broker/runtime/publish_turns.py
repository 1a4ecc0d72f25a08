"""Turns of flushes of publishes, shared by project once there are more of them than may be under way (M1).

Nothing is counted while there is room: a flush begins at once.  Who finds no room waits, and is next when his
project has used least of the time (fair_turns.py).  While several projects publish there is room for one.
"""

import asyncio
from typing import Any

from broker.runtime.company import Company
from broker.runtime.fair_turns import FairTurns, Turn

LONG_SECONDS = 0.02  # a project whose flushes take so long leaves the last free turn to others
MOST_CHARGED_SECONDS = 0.5  # for a flush


class PublishTurns:
    """Of one process; `at_once`, 1 or more, each on a connection."""

    def __init__(self, at_once: int, *, company: Company) -> None:
        self._at_once = at_once
        self._company = company
        self._turns = FairTurns[asyncio.Future[Any]](
            at_once, long=LONG_SECONDS, most=MOST_CHARGED_SECONDS, company=company
        )
        self._waiting = 0
        self._uncounted = 0  # under way, and begun while nobody waited

    @property
    def any_waits(self) -> bool:
        return self._waiting > 0

    def begin_at_once(self, project: str) -> bool:
        """Whether there is room, and nobody waits for it; then a flush has begun that ends with `end(None, …)`."""
        room = 1 if self._company.is_there() else self._at_once
        if self._waiting or self._uncounted + self._turns.under_way >= room:
            return False
        self._company.had_turn(project)
        self._uncounted += 1
        return True

    async def wait(self, project: str) -> Turn[Any]:
        """A turn, once it has come."""
        begun: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting += 1
        self._turns.ask((project,), begun)
        self._begin()
        try:
            return await begun  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            if begun.done() and not begun.cancelled():  # both at once
                self.end(begun.result(), 0.0)
            raise

    def end(self, turn: Turn[Any] | None, seconds: float) -> None:
        """The flush that had it has ended, and took so long."""
        if turn is None:
            self._uncounted -= 1
        else:
            self._turns.end(turn, seconds)
        if self._waiting:
            self._begin()

    def _begin(self) -> None:
        while self._uncounted + self._turns.under_way < self._at_once:
            turn = self._turns.begin()
            if turn is None:
                return
            self._waiting -= 1
            if turn.item.done():  # who waited has been cancelled
                self._turns.end(turn, 0.0)
            else:
                turn.item.set_result(turn)
