"""What every client beside the publishers and receivers is: one that does things to what they have, now and then.

A new one is a file with a class of this form, and its name in workload.ACTORS.  What it does, it adds to the
history as operations of its own (history.py), for which there are checks (checker.CHECKS) and planted faults.
"""

import asyncio
import random
from collections.abc import Sequence
from typing import Protocol

from tests.faults.clients.rest import RestCaller
from tests.faults.clients.topology import Plan
from tests.faults.history import History


class Actor(Protocol):
    stopping: asyncio.Event

    def __init__(
        self, caller: RestCaller, history: History, dice: random.Random, plans: Sequence[Plan], *, pause: float
    ) -> None:
        """`pause`: seconds between two things it does, about."""

    async def run(self) -> None:
        """Until it is stopping."""

    async def mend(self) -> None:
        """Once all is well again, as often as the drain looks: see to the end of what was begun."""
