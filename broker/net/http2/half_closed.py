"""Streams that were answered before their request was complete: half closed on this side (RFC 9113, section 5.1).

The peer usually ends its side once it has read the answer.  A peer that goes on sending is asked to stop by
RST_STREAM (NO_ERROR, section 8.1), but only after a while: a proxy may discard the answer when the reset arrives
with it, so that the caller sees CANCELLED in place of the error (docs/decisions/0079).
"""

import asyncio
from collections.abc import Callable

from broker.net.http2.frames import Code, reset
from broker.net.http2.outgoing import Outgoing

PATIENCE_SECONDS = 1.0  # for the peer to end its side of a stream
MAX_WAITING = 1_000  # streams of one connection; beyond these a stream is reset at once


class HalfClosedStreams:
    """The half-closed streams of one connection.  `changed` is called whenever one has ended."""

    def __init__(self, outgoing: Outgoing, changed: Callable[[], None], seconds: float) -> None:
        self._outgoing = outgoing
        self._changed = changed
        self._seconds = seconds
        self._timers: dict[int, asyncio.TimerHandle] = {}  # by the stream's id

    def __bool__(self) -> bool:
        return bool(self._timers)

    def add(self, stream_id: int) -> None:
        """Adds a stream whose answer is complete, and whose request is not."""
        if len(self._timers) < MAX_WAITING:
            loop = asyncio.get_running_loop()
            self._timers[stream_id] = loop.call_later(self._seconds, self._give_up, stream_id)
        else:
            self._outgoing.reply(reset(stream_id, Code.NO_ERROR))

    def remote_ended(self, stream_id: int) -> None:
        """Removes a stream whose peer has ended its side, or reset it.  Does nothing for other streams."""
        timer = self._timers.pop(stream_id, None)
        if timer is not None:
            timer.cancel()
            self._changed()

    def clear(self) -> None:
        """Stops all timers, since the connection has ended."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _give_up(self, stream_id: int) -> None:
        del self._timers[stream_id]
        self._outgoing.reply(reset(stream_id, Code.NO_ERROR))
        self._changed()
