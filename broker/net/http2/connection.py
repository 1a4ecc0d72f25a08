"""An HTTP/2 connection of a client (RFC 9113): its frames, its streams, and the windows of both directions.

    open ──shutdown()──► going away: streams that are there go on, new ones are refused ──the last ends──► closed
      └── the peer broke a rule, floods (patience.py), or is silent for too long ──► closed

The limits below bound what this side holds for a peer, whatever the peer does: bodies, header blocks, and responses
that it does not read (outgoing.py).  They also bound the time for which it occupies the event loop (incoming.py).
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from broker.fairness.shared_capacity import SharedCapacity
from broker.net.http2 import frames, half_closed
from broker.net.http2.frames import Code, ConnectionFault, Flag, Kind, Setting, StreamFault
from broker.net.http2.half_closed import HalfClosedStreams
from broker.net.http2.headers import MAX_BLOCK_BYTES, MAX_LIST_BYTES, HeaderDecoder
from broker.net.http2.incoming import MAX_FRAME, Incoming
from broker.net.http2.outgoing import Outgoing
from broker.net.http2.patience import Cost, Patience
from broker.net.http2.peer import PeerSettings
from broker.net.http2.rotation import Rotation
from broker.net.http2.stream import NOBODY, Receiver, Stream
from broker.net.limits.open_connections import address_in
from broker.net.tls.client_certificate import client_certificate

MAX_STREAMS = 1_000  # at one time
STREAM_BYTES = 4_096  # the approximate size of a stream besides its headers
STREAM_WINDOW = 1_048_576  # what a client may send of one body before the window is widened
CONNECTION_WINDOW = 16_777_216
MAX_CONTINUATIONS = 64  # frames of one header block
HEADERS_WORK = 8  # of a turn (incoming.py): a header block, a call
HEADER_BYTES_OF_WORK = 16
LINGER_SECONDS = (
    1.0  # for a peer that broke a rule to read why: if closed at once, its further data would cause a reset
)
PING_SECONDS = 20.0  # a peer that is silent for so long gets a PING, and as much time to answer

_OWN_SETTINGS = frames.settings(
    {
        Setting.MAX_CONCURRENT_STREAMS: MAX_STREAMS,
        Setting.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
        Setting.MAX_FRAME_SIZE: MAX_FRAME,
        Setting.MAX_HEADER_LIST_SIZE: MAX_LIST_BYTES,
    }
) + frames.window_update(0, CONNECTION_WINDOW - frames.DEFAULT_WINDOW)
_SETTINGS_ACK = frames.frame(Kind.SETTINGS, Flag.ACK, 0)
_PING = frames.frame(Kind.PING, 0, 0, b"\0" * 8)


class Registry(Protocol):
    """The server's set of connections, each of which it can shut down."""

    def add(self, connection: "Http2Connection", /) -> None: ...
    def discard(self, connection: "Http2Connection", /) -> None: ...


class Http2Connection(asyncio.Protocol):
    """`accept(stream)` gives the receiver of each new stream.

    `stream_memory`: the bytes that open streams and their headers may take, which all connections of the process
    share by address: a header block of a few bytes may repeat a header of 4 KB sixteen times.
    """

    def __init__(
        self,
        accept: Callable[[Stream], Receiver],
        registry: Registry,
        rotation: Rotation,
        stream_memory: SharedCapacity,
        *,
        ping_seconds: float = PING_SECONDS,
        half_closed_seconds: float = half_closed.PATIENCE_SECONDS,
    ) -> None:
        self._accept = accept
        self._registry = registry
        self._rotation = rotation
        self._stream_memory = stream_memory
        self._ping_seconds = ping_seconds
        self._half_closed_seconds = half_closed_seconds
        self._decoder = HeaderDecoder()
        self.peer = PeerSettings()
        self._streams: dict[int, Stream] = {}
        self._receive_window = CONNECTION_WINDOW
        self._last_stream_id = 0
        self._block: tuple[int, int, list[bytes]] | None = None  # an unfinished header block: stream, flags, parts
        self._settings_came = False  # the peer's first SETTINGS has come
        self._going_away = False
        self._closed = False
        self._heard = self._asked = False  # since the last tick
        self._handlers: tuple[Callable[[int, int, bytes], None], ...] = (
            self._on_data, self._on_headers, self._on_priority, self._on_reset, self._on_settings,
            self._on_push_promise, self._on_ping, self._on_goaway, self._on_window_update, self._on_continuation,
        )  # fmt: skip

    # --- asyncio -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        loop = asyncio.get_running_loop()
        self.transport = self._transport = cast(asyncio.Transport, transport)
        self.is_secure = transport.get_extra_info("ssl_object") is not None
        self.address = address_in(self.peer_address())
        self._held_by = (self.address, id(self))
        self.client_certificate = client_certificate(transport)  # verified; None: the client showed none
        self._patience = Patience(loop.time)
        self._outgoing = Outgoing(self._transport, self.peer, self._patience)
        self._half_closed = HalfClosedStreams(self._outgoing, self._close_if_done, self._half_closed_seconds)
        self._incoming = Incoming(self._transport, self._on_frame, self._fail, self._rotation)
        self._registry.add(self)
        self._outgoing.write(_OWN_SETTINGS)
        self._timer = loop.call_later(self._ping_seconds, self._tick)

    def peer_address(self) -> object:
        """Returns the address of the client: host and port first, if they are known."""
        return self._transport.get_extra_info("peername")

    def data_received(self, data: bytes) -> None:
        if not self._closed:
            self._heard = True
            self._incoming.feed(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        self._timer.cancel()
        self._registry.discard(self)

    def _end(self) -> None:
        self._closed = self._incoming.ended = True
        self._outgoing.lost()
        self._half_closed.clear()
        for stream in list(self._streams.values()):
            self._close(stream).gone()

    def pause_writing(self) -> None:
        self._outgoing.pause()

    def resume_writing(self) -> None:
        self._outgoing.resume()

    def shutdown(self) -> None:
        """Accepts no more streams; closes the connection once the open ones have ended."""
        if self._going_away or self._closed:
            return
        self._going_away = True
        self._outgoing.write(frames.goaway(self._last_stream_id, Code.NO_ERROR, "the broker stops"))
        for stream in list(self._streams.values()):
            stream.receiver.stop()
        self._close_if_done()

    def _tick(self) -> None:
        if not self._heard:
            if self._asked:
                self._transport.abort()
                return
            self._outgoing.write(_PING)
        if not self._settings_came:
            self._fail(ConnectionFault(Code.SETTINGS_TIMEOUT, "no SETTINGS came"))
            return
        for stream in list(self._streams.values()):
            stream.receiver.tick()
        self._asked, self._heard = not self._heard, False
        self._timer = asyncio.get_running_loop().call_later(self._ping_seconds, self._tick)

    # --- streams -----------------------------------------------------------------------------------------

    def write_headers(self, stream: Stream, block: bytes, *, end_stream: bool) -> None:
        self._outgoing.write_headers(stream.stream_id, block, end_stream=end_stream)

    def pump(self, stream: Stream) -> None:
        """Send what there is room for."""
        if self._outgoing.pump(stream):
            stream.all_sent()

    def end(self, stream: Stream, trailers: bytes) -> None:
        """Ends a stream, with its trailers, if there are any."""
        if trailers:
            self._outgoing.write_headers(stream.stream_id, trailers, end_stream=True)
        else:
            self._outgoing.write(frames.frame(Kind.DATA, Flag.END_STREAM, stream.stream_id))
        if not stream.remote_ended:
            self._half_closed.add(stream.stream_id)
        self._close(stream)

    def write_reset(self, stream: Stream, code: Code) -> None:
        self._outgoing.reply(frames.reset(stream.stream_id, code))
        self._close(stream)

    def return_window(self, stream: Stream, size: int) -> None:
        stream.unreturned += size
        if stream.unreturned > STREAM_WINDOW // 2:
            self._outgoing.write(frames.window_update(stream.stream_id, stream.unreturned))
            stream.receive_window += stream.unreturned
            stream.unreturned = 0

    def _close(self, stream: Stream) -> Receiver:
        """Returns who it was for.  They let go of each other, so that both go at once, and no collector looks."""
        receiver, stream.receiver = stream.receiver, NOBODY
        stream.closed = True
        stream.wake_drained()
        if self._streams.pop(stream.stream_id, None) is not None:
            self._stream_memory.give_back(self._held_by, amount=STREAM_BYTES + stream.headers.size)
        self._outgoing.forget(stream)
        self._close_if_done()
        return receiver

    def _close_if_done(self) -> None:
        if self._going_away and not self._streams and not self._half_closed and not self._closed:
            self._closed = self._incoming.ended = True
            self._outgoing.flush()
            self._transport.close()

    def _fail(self, fault: ConnectionFault) -> None:
        """Say what was wrong, and end the connection with its streams."""
        self._outgoing.write(frames.goaway(self._last_stream_id, fault.code, fault.reason))
        self._outgoing.flush()
        self._end()
        self._timer.cancel()
        if not self._transport.is_closing():
            self._transport.write_eof()
            self._timer = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._transport.abort)

    # --- reading -----------------------------------------------------------------------------------------

    def _on_frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if self._block is not None and (kind != Kind.CONTINUATION or stream_id != self._block[0]):
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a header block is interrupted")
        if not self._settings_came and kind != Kind.SETTINGS:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "the first frame is not SETTINGS")
        if kind >= len(self._handlers):
            self._patience.spend(Cost.FRAME)
            return  # RFC 9113, section 4.1: unknown kinds are ignored
        try:
            self._handlers[kind](flags, stream_id, payload)
        except StreamFault as fault:
            self._on_stream_fault(fault)

    def _on_stream_fault(self, fault: StreamFault) -> None:
        self._patience.spend(Cost.FAULT)
        self._outgoing.reply(frames.reset(fault.stream_id, fault.code))
        if stream := self._streams.get(fault.stream_id):
            self._close(stream).gone()

    def _on_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        size = len(payload)
        self._require_begun(stream_id)
        self._receive_window -= size
        if self._receive_window < 0:
            raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "more was sent than the window allows")
        if self._receive_window <= CONNECTION_WINDOW // 2:
            self._outgoing.write(frames.window_update(0, CONNECTION_WINDOW - self._receive_window))
            self._receive_window = CONNECTION_WINDOW
        body = frames.unpadded(flags, payload)
        stream = self._streams.get(stream_id)
        if stream is None:
            self._on_late_frame(stream_id, flags, Cost.FRAME)
            return
        if stream.remote_ended:
            raise StreamFault(stream_id, Code.STREAM_CLOSED)
        stream.receive_window -= size
        if stream.receive_window < 0:
            raise StreamFault(stream_id, Code.FLOW_CONTROL_ERROR)
        if len(body) < size:
            stream.consumed(size - len(body))
        if body:
            stream.receiver.data(body)
        elif not flags & Flag.END_STREAM:
            self._patience.spend(Cost.FRAME)
        if flags & Flag.END_STREAM and not stream.closed:
            stream.remote_ended = True
            stream.receiver.ended()

    def _on_headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not stream_id & 1:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a client's stream has an odd id")
        block = frames.unpadded(flags, payload)
        if flags & Flag.PRIORITY:
            if len(block) < 5:
                raise ConnectionFault(Code.FRAME_SIZE_ERROR, "a HEADERS frame is too short")
            block = block[5:]
        if flags & Flag.END_HEADERS:
            self._on_header_block(stream_id, flags, block)
        else:
            self._block = (stream_id, flags, [block])

    def _on_continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        if self._block is None:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        _, first_flags, parts = self._block
        parts.append(payload)
        if len(parts) > MAX_CONTINUATIONS or sum(map(len, parts)) > MAX_BLOCK_BYTES:
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "a header block is too large")
        if flags & Flag.END_HEADERS:
            self._block = None
            self._on_header_block(stream_id, first_flags, b"".join(parts))

    def _on_header_block(self, stream_id: int, flags: int, block: bytes) -> None:
        self._incoming.work += HEADERS_WORK + len(block) // HEADER_BYTES_OF_WORK
        headers = self._decoder.decode(block)
        if stream_id <= self._last_stream_id:
            self._on_trailers(stream_id, flags)
            return
        self._last_stream_id = stream_id
        if self._going_away or len(self._streams) >= MAX_STREAMS:
            raise StreamFault(stream_id, Code.REFUSED_STREAM)
        if headers.is_malformed:
            raise StreamFault(stream_id, Code.PROTOCOL_ERROR)
        if self._stream_memory.take(self._held_by, amount=STREAM_BYTES + headers.size) is not None:
            raise StreamFault(stream_id, Code.REFUSED_STREAM)
        stream = Stream(self, stream_id, headers, window=self.peer.initial_window, receive_window=STREAM_WINDOW)
        self._streams[stream_id] = stream
        stream.remote_ended = bool(flags & Flag.END_STREAM)
        stream.receiver = self._accept(stream)
        if stream.remote_ended and not stream.closed:
            stream.receiver.ended()

    def _on_trailers(self, stream_id: int, flags: int) -> None:
        stream = self._streams.get(stream_id)
        if stream is None:
            self._on_late_frame(stream_id, flags, Cost.FAULT)  # its headers were decoded to update the table
            return
        if stream.remote_ended:
            raise StreamFault(stream_id, Code.STREAM_CLOSED)
        if not flags & Flag.END_STREAM:
            raise StreamFault(stream_id, Code.PROTOCOL_ERROR)
        stream.remote_ended = True
        stream.receiver.ended()

    def _on_late_frame(self, stream_id: int, flags: int, cost: Cost) -> None:
        """Handles more of the request of a stream that was answered before its end, or reset."""
        self._patience.spend(cost)
        if flags & Flag.END_STREAM:
            self._half_closed.remote_ended(stream_id)

    def _on_priority(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not stream_id:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "PRIORITY needs a stream")
        if len(payload) != 5:
            raise StreamFault(stream_id, Code.FRAME_SIZE_ERROR)
        self._patience.spend(Cost.FRAME)

    def _on_reset(self, flags: int, stream_id: int, payload: bytes) -> None:
        self._require_begun(stream_id)
        if len(payload) != 4:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "RST_STREAM has 4 bytes")
        self._patience.spend(Cost.RESET)
        if stream := self._streams.get(stream_id):
            self._close(stream).gone()
        self._half_closed.remote_ended(stream_id)

    def _on_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "SETTINGS are of the connection")
        self._settings_came = True
        self._patience.spend(Cost.SETTINGS + len(payload) // frames.SETTING.size)
        if flags & Flag.ACK:
            if payload:
                raise ConnectionFault(Code.FRAME_SIZE_ERROR, "an ack of SETTINGS is empty")
            return
        if by := self.peer.change(payload):
            widened = self._widened(by)
            self._patience.spend(len(widened))  # each may now have a byte to send
            self._incoming.work += len(widened)
            for stream in widened:
                self.pump(stream)
        self._outgoing.reply(_SETTINGS_ACK)

    def _widened(self, by: int) -> Sequence[Stream]:
        """Move the windows of all streams; those that may have more to send now."""
        for stream in self._streams.values():
            stream.window += by
            if stream.window > frames.MAX_WINDOW:
                raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "a window is too large")
        return [stream for stream in self._streams.values() if stream.outbox] if by > 0 else []

    def _on_push_promise(self, flags: int, stream_id: int, payload: bytes) -> None:
        raise ConnectionFault(Code.PROTOCOL_ERROR, "a client does not push")

    def _on_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "PING is of the connection")
        if len(payload) != 8:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "PING has 8 bytes")
        self._patience.spend(Cost.FRAME)
        if not flags & Flag.ACK:
            self._outgoing.reply(frames.frame(Kind.PING, Flag.ACK, 0, payload))

    def _on_goaway(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "GOAWAY is of the connection")
        self._patience.spend(Cost.FAULT)

    def _on_window_update(self, flags: int, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "WINDOW_UPDATE has 4 bytes")
        self._patience.spend(Cost.FRAME)
        increment = frames.U32.unpack(payload)[0] & frames.ID_MASK
        if not stream_id:
            if not increment:
                raise ConnectionFault(Code.PROTOCOL_ERROR, "WINDOW_UPDATE of nothing")
            if not self._outgoing.widen(increment):
                raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "the connection's window is too large")
            return
        self._require_begun(stream_id)
        if stream := self._streams.get(stream_id):
            stream.window += increment
            if not increment or stream.window > frames.MAX_WINDOW:
                raise StreamFault(stream_id, Code.FLOW_CONTROL_ERROR if increment else Code.PROTOCOL_ERROR)
            if stream.outbox:
                self.pump(stream)

    def _require_begun(self, stream_id: int) -> None:
        if not stream_id or stream_id > self._last_stream_id:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a frame is of a stream that never began")
