"""Sends frames of an HTTP/2 connection, as far as the peer's windows and the socket have capacity.

Frames of one pass of the event loop are sent in one write.  Bodies wait in the outboxes of their streams.  Header
blocks and replies have no windows, so a peer that requests them and does not read is disconnected, and so is a peer
that reads nothing at all for a while.
"""

import asyncio

from broker.net.http2 import frames
from broker.net.http2.headers import NO_TABLE
from broker.net.http2.patience import Patience
from broker.net.http2.peer import PeerSettings
from broker.net.http2.stream import Stream

MAX_UNREAD_REPLY_BYTES = 4_194_304  # while the socket is full
MAX_FULL_SECONDS = 60.0  # for the peer to read what the socket holds: about 300 KB
SLIVER_BYTES = 1_024  # parts smaller than this restore no credit, because a peer may widen windows byte by byte
MAX_TURN_BYTES = 262_144  # of bodies; then the socket is checked for capacity


class Outgoing:
    """`pump` is for whoever has put something into a stream's outbox, or has widened its window."""

    def __init__(self, transport: asyncio.Transport, peer: PeerSettings, patience: Patience) -> None:
        self._transport = transport
        self._peer = peer
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._out: list[bytes] = []
        self._window = frames.DEFAULT_WINDOW  # of the connection
        self._blocked: dict[int, Stream] = {}  # streams that wait for the connection's window, or for the socket
        self._paused = False
        self._turn = 0  # bytes of bodies in `_out`
        self._replied = 0  # bytes since the socket has been full
        self._full: asyncio.TimerHandle | None = None

    def pause(self) -> None:
        """Pauses writing while the socket is full."""
        self._paused = True
        self._replied = 0
        if self._full is None:
            self._full = self._loop.call_later(MAX_FULL_SECONDS, self._transport.abort)

    def resume(self) -> None:
        self._paused = False
        self._not_full()
        self._pump_blocked()

    def lost(self) -> None:
        """Stops waiting for the socket, since the connection has ended."""
        self._not_full()

    def _not_full(self) -> None:
        full, self._full = self._full, None
        if full is not None:
            full.cancel()

    def widen(self, increment: int) -> bool:
        """The peer takes more on the connection.  False: so much more than there can be."""
        self._window += increment
        if self._window > frames.MAX_WINDOW:
            return False
        self._pump_blocked()
        return True

    def write(self, data: bytes) -> None:
        """Frames of which a peer cannot ask for many."""
        if not self._out:
            self._loop.call_soon(self.flush)
        self._out.append(data)

    def flush(self) -> None:
        out, self._out, self._turn = self._out, [], 0
        if out and not self._transport.is_closing():
            self._transport.write(b"".join(out))
            self._pump_blocked()

    def reply(self, data: bytes) -> None:
        """Frames that the peer has asked for; it is cut off if it asks without end and does not read."""
        if self._paused:
            self._replied += len(data)
            if self._replied > MAX_UNREAD_REPLY_BYTES:
                self._transport.abort()
                return
        self.write(data)

    def write_headers(self, stream_id: int, block: bytes, *, end_stream: bool) -> None:
        if self._peer.table_was_shrunk:
            self._peer.table_was_shrunk = False
            block = NO_TABLE + block
        self._patience.answered += 1
        max_frame = self._peer.max_frame
        self.reply(frames.header_frames(stream_id, block, end_stream=end_stream, max_frame=max_frame))

    def pump(self, stream: Stream) -> bool:
        """Send of a stream's outbox what there is room for.  Returns whether that was all."""
        while stream.outbox:
            if stream.window <= 0:  # it continues at the peer's WINDOW_UPDATE
                return False
            if not self._has_capacity():
                self._blocked[stream.stream_id] = stream
                return False
            self._write_data(stream)
        return True

    def _has_capacity(self) -> bool:
        return self._window > 0 and not self._paused and self._turn < MAX_TURN_BYTES

    def forget(self, stream: Stream) -> None:
        self._blocked.pop(stream.stream_id, None)

    def _write_data(self, stream: Stream) -> None:
        """Writes one frame of a stream's outbox."""
        waiting = stream.outbox[0]
        size = min(len(waiting), stream.window, self._window, self._peer.max_frame)
        self.write(frames.HEAD.pack(size << 8, 0, stream.stream_id))
        self._out.append(bytes(waiting[:size]))
        stream.window -= size
        self._window -= size
        self._turn += size
        if size == len(waiting):
            self._patience.answered += 1
            stream.outbox.popleft()
            stream.written += 1
        else:
            self._patience.answered += size >= SLIVER_BYTES
            stream.outbox[0] = waiting[size:]

    def _pump_blocked(self) -> None:
        """Writes a frame for each stream in turn, for as long as there is room."""
        while self._blocked and self._has_capacity():
            stream_id = next(iter(self._blocked))
            stream = self._blocked.pop(stream_id)
            if stream.outbox and stream.window > 0:
                self._write_data(stream)
                if stream.outbox and stream.window > 0:
                    self._blocked[stream_id] = stream  # after the others
                    continue
            if not stream.outbox:
                stream.all_sent()
