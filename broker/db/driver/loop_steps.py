"""Steps that have the event loop for long: who has them waits before each, in the way that the caller says.

What a step costs is known before, in the unit of fairness/loop_turns.py.
"""

from collections.abc import Awaitable, Callable

Turn = Callable[[int], Awaitable[None]]  # waits until a step may be done, which costs so much


async def at_once(cost: int) -> None:
    """Returns at once, since no other work waits."""
