"""What every client beside the publishers and receivers is: one that does things to what they have, now and then.

A new one is a file with a subclass, and its name in workload.ACTORS.  What it does, it adds to the history as
operations of its own (history.py), for which there are checks (checker.CHECKS) and planted faults.
"""

import asyncio
import itertools
import random
from collections.abc import Sequence
from typing import ClassVar

from tests.faults.clients.rest import RestCaller
from tests.faults.clients.topology import EVENTS, Plan
from tests.faults.history import History


class Actor:
    """Prepares what it needs, acts until it is stopping, and ends its work once all is well again.

    `_on`: not beside older releases, which do nothing of this, and not once it has ended.
    """

    rate: ClassVar[float]  # things that it does a second

    def __init__(
        self, caller: RestCaller, history: History, dice: random.Random, plans: Sequence[Plan], *, pause: float
    ) -> None:
        """`pause`: seconds between two things it does, about, if it has no rate of its own."""
        self._caller, self._history, self._dice, self._pause = caller, history, dice, pause
        self._on = any(plan.terms.topic == EVENTS for plan in plans)
        self._count = itertools.count()
        self.stopping = asyncio.Event()

    async def run(self) -> None:
        """Until it is stopping."""
        if not self._on:
            return
        await self._prepare()
        while not self.stopping.is_set():
            await self._act()
            await asyncio.sleep(self._dice.expovariate(self.rate))
        await self._leave()

    async def mend(self) -> None:
        """Once all is well again, as often as the drain looks: see to the end of what was begun."""
        if self._on:
            self._on = False
            await self._end()

    async def _prepare(self) -> None:
        """Create what it acts on."""

    async def _act(self) -> None:
        raise NotImplementedError

    async def _leave(self) -> None:
        """Close what it has open."""

    async def _end(self) -> None:
        """Receive what is left, and delete what it has created."""

    async def _delete(self, subscriptions: Sequence[str], topics: Sequence[str]) -> None:
        for name in subscriptions:
            await self._caller.do("DELETE", f"subscriptions/{name}", fine=[404])
        for name in topics:
            await self._caller.do("DELETE", f"topics/{name}", fine=[404])
