"""Turns of the event loop, by address, for what needs no permission.

Any client that reaches the port can make the broker verify credentials, serve pages outside of the API, answer
health checks and return errors; with any credential it can list the services.  Each of these takes the event loop
for a moment.  A client that asks for many of them waits for a turn before each (fairness/loop_turns.py), so that
calls of others are served in between.
"""

import asyncio
import random
from typing import Protocol

from broker.api.peer import host_of
from broker.api.steps import Turns
from broker.net.limits.client_address import counted_address

FREE_A_SECOND, FREE_AT_ONCE = 100.0, 20  # of an address, or of a project, without a turn
ANSWER_COST = 800_000  # of a page, a check or an error, with its overhead, in the unit of turns of the loop
MOST_WAITING = 16  # for turns, of an address: behind a proxy a tenant may share the address of an attacker
MOST_SECONDS = 0.75  # of that wait
_TOKEN_COST, _COST_OF_TOKEN_BYTE = 130_000, 150  # to read and verify a token: 0.3 ms, and 3 ms for 10 KB


class Pace(Protocol):
    """Counts answers by client or project.  `delay` counts one more, and returns the seconds that it waits."""

    def delay(self, of: str, /) -> float: ...


class AddressTurns:
    """The turns of one process."""

    def __init__(self, turns: Turns, often: Pace) -> None:
        """Clients wait for turns once they exceed the pace `often`."""
        self._turns = turns
        self._often = often

    async def to_answer(self, peer: object, payer: str = "") -> None:
        """Waits for a turn to answer what needs no permission.  `payer`: of the caller, if that is known."""
        await self._turn(payer or _address_of(peer), ANSWER_COST)

    async def to_verify(self, peer: object, authorization: bytes) -> None:
        """Waits for a turn to verify a credential, if the request has one."""
        if authorization:
            await self._turn(_address_of(peer), _TOKEN_COST + _COST_OF_TOKEN_BYTE * len(authorization))

    async def _turn(self, who: str, cost: int) -> None:
        """Waits for a turn if this is one of many.  If many wait already, waits for about half a second instead, so
        that other clients behind the same address never wait for long.
        """
        if not self._often.delay(who):
            return
        if self._turns.waiting(who) < MOST_WAITING:
            await self._turns.turn(who, cost)
        else:
            await asyncio.sleep(random.uniform(MOST_SECONDS / 2, MOST_SECONDS))  # noqa: S311  # not all at once


def _address_of(peer: object) -> str:
    return f"address {counted_address(host_of(peer))}"
