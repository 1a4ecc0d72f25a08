"""Long steps on the event loop: their owner waits before each, as its caller specifies.

The cost of a step is known beforehand, in the unit of fairness/loop_turns.py.
"""

from collections.abc import Awaitable, Callable

Turn = Callable[[int], Awaitable[None]]  # waits until a step of this cost may run


async def at_once(cost: int) -> None:
    """Returns at once, since no other work waits."""
