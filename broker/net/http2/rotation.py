"""Turns of connections that have sent more than is handled at once (M1).

Each is served for one turn's worth of work when its turn of the event loop comes, among all users that need the
loop for long (fairness/loop_turns.py).  So however many such connections there are, other work on the loop waits
for little more than one of them.  Connections that have sent little are served at once, and are never in this
rotation.
"""

from collections.abc import Callable, Hashable

TURN = 512  # work: 1 for each frame, and what a frame's handler adds; some milliseconds
SHORT_TURN = TURN // 4  # if several wait
_COST = 4_000  # of a unit of work, in the unit of turns of the loop: bytes that are read or written

# Calls a step when its owner has a turn, and accounts for its cost.
TurnOf = Callable[[Hashable, int, Callable[[], object]], None]


class Rotation:
    """The turns of the connections of one process."""

    def __init__(self, turn_of: TurnOf) -> None:
        self._turn_of = turn_of
        self._waiting = 0

    @property
    def turn(self) -> int:
        """The amount of work that the next connection does at once."""
        return SHORT_TURN if self._waiting else TURN

    def wait(self, connection: Hashable, go_on: Callable[[int], None]) -> None:
        """`go_on(turn)` is called when the connection's turn has come, once."""
        self._waiting += 1

        def step() -> None:
            self._waiting -= 1
            go_on(self.turn)

        self._turn_of(connection, self.turn * _COST, step)
