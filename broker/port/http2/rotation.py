"""Turns of connections that have sent more than is handled at once (M1).

One of them is served in each turn of the event loop, round and round: however many there are, whoever else waits
for the loop waits for one of them.  Who has sent little is served when it comes, and never stands here.
"""

import asyncio
from collections import deque
from collections.abc import Callable

TURN = 2_048  # work: 1 for each frame, and what a frame's handler adds; some 10 ms
SHORT_TURN = TURN // 4  # where several wait


class Rotation:
    """Of one process."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[int], None]] = deque()
        self._at_work = False

    @property
    def turn(self) -> int:
        """How much work one has at once, who comes now."""
        return SHORT_TURN if self._waiting else TURN

    def wait(self, go_on: Callable[[int], None]) -> None:
        """`go_on(turn)` is called when its turn has come, once."""
        self._waiting.append(go_on)
        if not self._at_work:
            self._at_work = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        go_on = self._waiting.popleft()
        try:
            go_on(self.turn)
        finally:
            self._at_work = bool(self._waiting)
            if self._at_work:
                asyncio.get_running_loop().call_soon(self._next)
