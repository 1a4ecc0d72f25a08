"""Turns of the event loop, by address, for what needs no permission.

Whoever reaches the port may show credentials that have to be verified, ask for pages outside of the API, check its
health, and with any credential ask what services there are.  Each takes the loop for a moment, so each waits for a
turn (runtime/loop_turns.py): a caller who asks without a pause is served between the calls of the others.
"""

from broker.domain.client_address import counted_address
from broker.front.peer import host_of
from broker.front.steps import Turns

ANSWER_COST = 800_000  # of a page or of a check, and of what surrounds it; as the turns of the loop are counted
_TOKEN_COST, _COST_OF_TOKEN_BYTE = 130_000, 150  # to read and verify a token: 0.3 ms, and 3 ms for 10 KB


async def turn_to_answer(turns: Turns, peer: object) -> None:
    """Wait for a turn to answer what needs no permission."""
    await _turn(turns, peer, ANSWER_COST)


async def turn_to_verify(turns: Turns, peer: object, authorization: bytes) -> None:
    """Wait for a turn to verify a credential, if there is one that takes the loop for long."""
    if authorization:
        await _turn(turns, peer, _TOKEN_COST + _COST_OF_TOKEN_BYTE * len(authorization))


async def _turn(turns: Turns, peer: object, cost: int) -> None:
    await turns.turn(("address", counted_address(host_of(peer))), cost)
