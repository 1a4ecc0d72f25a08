"""Turns of the event loop, by address, for what needs no permission.

Whoever reaches the port may show credentials that have to be verified, ask for pages outside of the API, check its
health, and have errors; with any credential he may ask what services there are.  Each takes the loop for a moment.
Whoever asks for many waits for a turn before each (runtime/loop_turns.py) and is served between the others' calls.
"""

import asyncio
import random
from typing import Protocol

from broker.domain.client_address import counted_address
from broker.front.peer import host_of
from broker.front.steps import Turns

FREE_A_SECOND, FREE_AT_ONCE = 100.0, 20  # of an address, or of a project, without a turn
ANSWER_COST = 800_000  # of a page, a check or an error, and of what surrounds it; as turns of the loop are counted
MOST_WAITING = 16  # for turns, of an address: a tenant may have the address of an attacker, behind a proxy
MOST_SECONDS = 0.75  # that the others wait
_TOKEN_COST, _COST_OF_TOKEN_BYTE = 130_000, 150  # to read and verify a token: 0.3 ms, and 3 ms for 10 KB


class Pace(Protocol):
    """Of answers: how many seconds one more is to wait, by whom it is for; it counts."""

    def delay(self, of: str, /) -> float: ...


class AddressTurns:
    """Of one process."""

    def __init__(self, turns: Turns, often: Pace) -> None:
        """Whoever exceeds the pace `often` waits for turns."""
        self._turns = turns
        self._often = often

    async def to_answer(self, peer: object, payer: str = "") -> None:
        """Wait for a turn to answer what needs no permission.  `payer`: whose it is, if it is known who calls."""
        await self._turn(payer or _address_of(peer), ANSWER_COST)

    async def to_verify(self, peer: object, authorization: bytes) -> None:
        """Wait for a turn to verify a credential, if there is one that takes the loop for long."""
        if authorization:
            await self._turn(_address_of(peer), _TOKEN_COST + _COST_OF_TOKEN_BYTE * len(authorization))

    async def _turn(self, who: str, cost: int) -> None:
        """If it is one of many, a turn; or about half a second without one, so that whoever has the same address
        never waits for long.
        """
        if not self._often.delay(who):
            return
        if self._turns.waiting(who) < MOST_WAITING:
            await self._turns.turn(who, cost)
        else:
            await asyncio.sleep(random.uniform(MOST_SECONDS / 2, MOST_SECONDS))  # noqa: S311  # not all at once


def _address_of(peer: object) -> str:
    return f"address {counted_address(host_of(peer))}"
