"""Limits frames of a connection that advance no call: control frames, resets, invalid calls.

Each such frame is charged what it roughly costs this process, and time and responses restore the credit.  A client
that has used all of its credit is flooding, and is disconnected with ENHANCE_YOUR_CALM.
"""

from collections.abc import Callable
from enum import IntEnum

from broker.net.http2.frames import Code, ConnectionFault

PATIENCE = 20_000
EARNED_EACH_SECOND = 2_000
EARNED_BY_ANSWER = 4  # by each frame of a response: while they read, clients widen windows and send pings


class Cost(IntEnum):
    FRAME = 1
    RESET = 5
    FAULT = 10  # of a stream
    SETTINGS = 50  # all windows may change; plus one for each setting


class Patience:
    """`answered` counts frames of answers; whoever sends them adds to it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.answered = 0
        self._left = float(PATIENCE)
        self._clock = clock
        self._earned_at = clock()
        self._paid_for = 0  # of `answered`

    def spend(self, cost: int) -> None:
        """Raises ConnectionFault when there is nothing left."""
        self._left -= cost
        if self._left < 0:
            self._earn()
            if self._left < 0:
                raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "too many frames that are no part of a call")

    def _earn(self) -> None:
        now = self._clock()
        seconds, self._earned_at = now - self._earned_at, now
        frames, self._paid_for = self.answered - self._paid_for, self.answered
        earned = seconds * EARNED_EACH_SECOND + frames * EARNED_BY_ANSWER
        self._left += min(earned, PATIENCE)
