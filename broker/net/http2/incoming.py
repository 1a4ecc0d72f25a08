"""Splits the incoming bytes of an HTTP/2 connection into frames.

However much has arrived, a connection is served for one turn's worth of work before the event loop serves the
others, and again when its turn in the rotation has come.  Until then nothing more is read from it.
"""

import asyncio
from collections.abc import Callable

from broker.net.http2 import frames
from broker.net.http2.frames import Code, ConnectionFault
from broker.net.http2.rotation import Rotation

MAX_FRAME = 65_536


class Incoming:
    """`on_frame(kind, flags, stream_id, payload)` is called for each frame, `failed` once if one breaks a rule."""

    def __init__(
        self,
        transport: asyncio.Transport,
        on_frame: Callable[[int, int, int, bytes], None],
        failed: Callable[[ConnectionFault], None],
        rotation: Rotation,
    ) -> None:
        self.work = 0  # of this turn; expensive handlers of frames add to it
        self.ended = False  # set by the owner: nothing more is read
        self._transport = transport
        self._on_frame = on_frame
        self._failed = failed
        self._rotation = rotation
        self._unread = b""
        self._preface_left = len(frames.PREFACE)

    def feed(self, data: bytes) -> None:
        self._feed(data, self._rotation.turn)

    def _feed(self, data: bytes, turn: int) -> None:
        if self._unread:
            data = self._unread + data
        self.work = 0
        try:
            self._unread = data[self._read(data, turn) :]
        except ConnectionFault as fault:
            self._unread = b""
            self._failed(fault)
            return
        if self.work >= turn and self._unread and not self._transport.is_closing():
            self._transport.pause_reading()
            self._rotation.wait(self, self._next_turn)

    def _next_turn(self, turn: int) -> None:
        if not (self.ended or self._transport.is_closing()):
            self._transport.resume_reading()
            self._feed(b"", turn)

    def _read(self, data: bytes, turn: int) -> int:
        """Handle the whole frames of `data`; returns how many bytes that were."""
        at, end = 0, len(data)
        if self._preface_left:
            at = min(self._preface_left, end)
            if data[:at] != frames.PREFACE[-self._preface_left :][:at]:
                raise ConnectionFault(Code.PROTOCOL_ERROR, "this is not HTTP/2")
            self._preface_left -= at
        while end - at >= frames.HEAD_BYTES and not self.ended and self.work < turn:
            head, flags, stream_id = frames.HEAD.unpack_from(data, at)
            length = head >> 8
            if length > MAX_FRAME:
                raise ConnectionFault(Code.FRAME_SIZE_ERROR, "a frame is too large")
            stop = at + frames.HEAD_BYTES + length
            if stop > end:
                break
            self.work += 1
            self._on_frame(head & 0xFF, flags, stream_id & frames.ID_MASK, data[at + frames.HEAD_BYTES : stop])
            at = stop
        return at
