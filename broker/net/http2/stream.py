"""A stream of an HTTP/2 connection: its windows, and the data that waits to be sent on it.

open ──END_STREAM received──► half closed (remote) ──trailers sent──► closed
  │                                     │
  └── RST_STREAM, either way, or the connection's end ──► closed
"""

import asyncio
from collections import deque
from typing import Protocol

from broker.net.http2.frames import Code
from broker.net.http2.headers import RequestHeaders
from broker.net.http2.peer import PeerSettings


class Receiver(Protocol):
    """The interface of a stream's receiver.

    It is notified of what arrives, in order, and of the end of the stream.
    """

    def data(self, payload: bytes) -> None:
        """Called with a piece of the body.

        Its bytes stay charged to the stream's window until `Stream.consumed`.
        """

    def ended(self) -> None:
        """Called when the body is complete."""

    def gone(self) -> None:
        """Called when the peer has reset the stream or lost the connection; nothing more can be sent."""

    def tick(self) -> None:
        """Called regularly (connection.PING_SECONDS)."""

    def stop(self) -> None:
        """Called when the process is about to stop: ends what would not end soon by itself."""


class Nobody:
    """The receiver of a stream that is closed, or has been answered already."""

    def data(self, payload: bytes) -> None: ...
    def ended(self) -> None: ...
    def gone(self) -> None: ...
    def tick(self) -> None: ...
    def stop(self) -> None: ...


NOBODY = Nobody()


class Connection(Protocol):
    """The interface of a connection that a stream needs."""

    peer: PeerSettings

    def write_headers(self, stream: "Stream", block: bytes, *, end_stream: bool) -> None: ...
    def pump(self, stream: "Stream") -> None: ...
    def end(self, stream: "Stream", trailers: bytes) -> None: ...
    def write_reset(self, stream: "Stream", code: Code) -> None: ...
    def return_window(self, stream: "Stream", size: int) -> None: ...


class Stream:
    """`window` is what the peer still takes, `receive_window` what it still may send.

    Everything that sends does nothing once the stream is closed.
    """

    __slots__ = (
        "_connection",
        "_drained",
        "closed",
        "headers",
        "outbox",
        "receive_window",
        "receiver",
        "remote_ended",
        "stream_id",
        "trailers",
        "unreturned",
        "window",
        "written",
    )

    def __init__(
        self, connection: Connection, stream_id: int, headers: RequestHeaders, *, window: int, receive_window: int
    ) -> None:
        self._connection = connection
        self.stream_id = stream_id
        self.headers = headers
        self.receiver: Receiver = NOBODY
        self.window = window
        self.receive_window = receive_window
        self.unreturned = 0  # consumed, but not returned to the peer's window yet
        self.outbox: deque[memoryview] = deque()  # data that neither a window nor the socket had capacity for
        self.written = 0  # payloads that were sent completely
        self.trailers: bytes | None = None  # to be sent after the outbox; b"": the stream ends without any
        self.remote_ended = False
        self.closed = False
        self._drained: asyncio.Future[None] | None = None

    @property
    def max_header_list(self) -> int | None:
        """The size of headers that the peer accepts (headers.list_size); None: it has not said so."""
        return self._connection.peer.max_header_list

    def send_headers(self, block: bytes) -> None:
        if not self.closed:
            self._connection.write_headers(self, block, end_stream=False)

    def send_data(self, payload: bytes) -> int:
        """Send as much as the windows allow; the rest follows as they open.  Returns what `written` is after it."""
        end = self.written + len(self.outbox) + 1
        if not self.closed:
            self.outbox.append(memoryview(payload))
            self._connection.pump(self)
        return end

    def send_trailers(self, block: bytes) -> None:
        """End the stream, once all data is sent."""
        if not self.closed:
            self.trailers = block
            self._connection.pump(self)

    def end(self) -> None:
        """End the stream, once all data is sent, without trailers."""
        self.send_trailers(b"")

    def reset(self, code: Code) -> None:
        """Ends the stream at once; its outbox is not sent."""
        if not self.closed:
            self._connection.write_reset(self, code)

    def consumed(self, size: int) -> None:
        """Lets the peer send `size` more bytes, since the receiver has taken as many."""
        if not self.closed and not self.remote_ended:
            self._connection.return_window(self, size)

    async def drained(self) -> bool:
        """Wait until nothing waits to be sent.  False: the stream was closed before."""
        while self.outbox and not self.closed:
            if self._drained is None:
                self._drained = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._drained)
        return not self.outbox

    def all_sent(self) -> None:
        """Ends the stream with its trailers once the outbox is empty."""
        self.wake_drained()
        if self.trailers is not None:
            self._connection.end(self, self.trailers)

    def wake_drained(self) -> None:
        """Wakes the task that waits until all is sent, or nothing more is sent."""
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)
