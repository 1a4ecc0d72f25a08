"""Turns of the event loop, by address, for what needs no permission.

Whoever reaches the port may show credentials that have to be verified, ask for pages outside of the API, check its
health, and with any credential ask what services there are.  Each takes the loop for a moment, so each waits for a
turn (runtime/loop_turns.py): a caller who asks without a pause is served between the calls of the others.
"""

import asyncio
import random
from collections.abc import Hashable

from broker.domain.client_address import counted_address
from broker.front.peer import host_of
from broker.front.steps import Turns

ANSWER_COST = 800_000  # of a page or of a check, and of what surrounds it; as the turns of the loop are counted
MOST_WAITING = 16  # for turns, of an address: a tenant may have the address of an attacker, behind a proxy
MOST_SECONDS = 0.75  # that the others wait
_TOKEN_COST, _COST_OF_TOKEN_BYTE = 130_000, 150  # to read and verify a token: 0.3 ms, and 3 ms for 10 KB


async def turn_to_answer(turns: Turns, peer: object, payer: str = "") -> None:
    """Wait for a turn to answer what needs no permission.  `payer`: whose it is, if it is known who calls."""
    await _turn(turns, payer or ("address", counted_address(host_of(peer))), ANSWER_COST)


async def turn_to_verify(turns: Turns, peer: object, authorization: bytes) -> None:
    """Wait for a turn to verify a credential, if there is one that takes the loop for long."""
    if authorization:
        cost = _TOKEN_COST + _COST_OF_TOKEN_BYTE * len(authorization)
        await _turn(turns, ("address", counted_address(host_of(peer))), cost)


async def _turn(turns: Turns, who: Hashable, cost: int) -> None:
    """A turn; or about half a second without one, so that whoever has the same address never waits for long."""
    if turns.waiting(who) < MOST_WAITING:
        await turns.turn(who, cost)
    else:
        await asyncio.sleep(random.uniform(MOST_SECONDS / 2, MOST_SECONDS))  # noqa: S311  # not all at once
