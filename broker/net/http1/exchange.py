"""A request and its response, as an API sees them: here over HTTP/1.1, in net/http2/exchange.py over HTTP/2.

arriving ──all of the body has come──► whole ──respond, or finish──► answered
   └───────────────┴── the caller has gone, or broke a rule ──► gone: what is written goes nowhere
"""

import asyncio
from typing import Protocol

from broker.model.client_certificate import ClientCertificate
from broker.net.http1.head import Head
from broker.net.http1.responses import CONTINUE, STATUS_LINES

MOST_UNREAD_BYTES = 65_536  # of a body that the API has not requested yet: the rest stays in the socket
_END = b"\r\n\r\n"
_END_AND_CLOSE = b"\r\nconnection: close" + _END
_END_AND_KEEP = b"\r\nconnection: keep-alive" + _END  # HTTP/1.0 needs this header
WITHOUT_BODY = (204, 304)  # statuses
_COPIED_BYTES = 16_384  # a body of up to this size is copied after its head: one buffer for the socket


class Gone(Exception):
    """The caller has closed the connection within its request, or takes no answer any more."""


class Connection(Protocol):
    """The interface of a connection that an exchange needs."""

    @property
    def peer(self) -> tuple[str, int] | None:
        """Address and port of the client, as far as they are known."""

    @property
    def client_certificate(self) -> ClientCertificate | None:
        """The client's verified certificate; None if it sent none over TLS."""

    def write(self, *parts: bytes) -> None: ...
    def read_on(self) -> None: ...
    def ends_now(self) -> bool: ...
    def answered(self, *, last: bool) -> None: ...
    def cut_off(self) -> None: ...
    async def writable(self) -> None: ...


class Exchange:
    """`head` of the request; `answered`: completely, as far as this side goes; `gone`: nobody reads an answer."""

    __slots__ = (
        "_body",
        "_changed",
        "_chunked",
        "_connection",
        "_is_bodiless",
        "_last",
        "_may_ask",
        "answered",
        "begun",
        "gone",
        "head",
        "headers",
        "request_id",
        "whole",
    )

    def __init__(self, connection: Connection, head: Head, body: bytes = b"", *, whole: bool = False) -> None:
        """`body`: what has come of it; `whole`: that is all of it."""
        self.head = head
        self.headers = b""  # lines of each response besides its own
        self.request_id = b""  # from its turn on
        self.whole = whole
        self.begun = self.answered = self.gone = False
        self._chunked = self._is_bodiless = self._last = False  # of a response in parts
        self._connection = connection
        self._body: bytes | bytearray = body  # received and not read
        self._may_ask = head.expects_continue  # the client may be waiting for 100 Continue
        self._changed: asyncio.Future[None] | None = None

    @property
    def peer(self) -> tuple[str, int] | None:
        """Address and port of the client, as far as they are known."""
        return self._connection.peer

    @property
    def client_certificate(self) -> ClientCertificate | None:
        """The client's verified certificate; None if it sent none over TLS."""
        return self._connection.client_certificate

    # --- what the API calls -----------------------------------------------------------------------------

    def take(self) -> bytes | None:
        """The whole body, if it is here at once; None: `read` has it, in pieces."""
        if not self.whole or self.gone:
            return None
        body, self._body = self._body, b""
        return bytes(body)

    async def read(self) -> tuple[bytes, bool]:
        """Returns the body received since the last call, at least a byte of it, and whether there is more to come.

        Raises Gone.
        """
        if not (self.whole or self._body or self.gone or self.answered):
            self._ask()
            self._connection.read_on()
            while not (self.whole or self._body or self.gone or self.answered):
                await self._change()
        if self.gone or self.answered:
            raise Gone
        body, self._body = self._body, b""
        return bytes(body), not self.whole

    async def hung_up(self) -> None:
        """Wait until the caller has closed the connection, or has been answered."""
        self._connection.read_on()  # otherwise the end would not be read
        while not (self.gone or self.answered):
            await self._change()

    def respond(self, status: int, headers: bytes, body: bytes) -> None:
        """Sends a whole answer.

        `headers`: lines, each with its end, of all but the length and the connection.  An answer that has begun in
        parts cannot be another: the connection is cut off.
        """
        if self.gone or self.answered:
            return
        if self.begun:
            self.cut_off()
            return
        last = self.is_last
        end = self._end_of_head(last=last)
        head = b"%b\r\n%b%bcontent-length: %d%b" % (STATUS_LINES[status], self.headers, headers, len(body), end)
        if self.head.method == "HEAD":
            self._connection.write(head)
        elif len(body) <= _COPIED_BYTES:
            self._connection.write(head + body)
        else:
            self._connection.write(head, body)
        self._finish(last=last)

    async def taken(self) -> None:
        """Wait until the caller has taken all but the last 64 KB of what was written, or has gone."""
        await self._connection.writable()

    # --- an answer in parts ------------------------------------------------------------------------------

    def begin(self, status: int, headers: bytes, *, length: int | None = None) -> None:
        """Sends the head of an answer.

        `headers`: lines as those of `respond`; `length` of the body, if it is known.
        """
        if self.gone:
            return
        self._last, framing = self.is_last, b""
        self._is_bodiless = self.head.method == "HEAD" or status in WITHOUT_BODY
        if length is not None:
            framing = b"content-length: %d\r\n" % length
        elif self.head.version != "1.1":
            self._last = True  # the end of the connection ends the body
        elif status not in WITHOUT_BODY:
            self._chunked = True
            framing = b"transfer-encoding: chunked\r\n"
        lines = b"%b%b%b" % (headers, framing, self.headers)
        end = self._end_of_head(last=self._last)
        self._write(b"%b\r\n%b%b" % (STATUS_LINES[status], lines.removesuffix(b"\r\n"), end))

    def send(self, part: bytes) -> None:
        """Sends a part of the body."""
        if part and not (self.gone or self._is_bodiless):
            self._write(b"%x\r\n%b\r\n" % (len(part), part) if self._chunked else part)

    def end(self) -> None:
        """Ends an answer whose body was sent."""
        if self._chunked and not (self.gone or self._is_bodiless):
            self._write(b"0\r\n\r\n")
        self._finish(last=self._last)

    @property
    def is_last(self) -> bool:
        """Whether the connection ends with this answer."""
        return not self.head.keep_alive or self._may_ask or self._connection.ends_now()

    def _end_of_head(self, *, last: bool) -> bytes:
        """Returns the end of a head, from the value of the API's last header on."""
        if last:
            return _END_AND_CLOSE
        return _END if self.head.version == "1.1" else _END_AND_KEEP

    def _write(self, data: bytes) -> None:
        self.begun = True
        self._connection.write(data)

    def _finish(self, *, last: bool) -> None:
        """Finishes an answer that was written; `last`: the connection ends with it."""
        if self.gone or self.answered:
            return
        self.begun = self.answered = True
        self._body = b""
        if self._changed is not None:
            self._wake()
        self._connection.answered(last=last)

    def cut_off(self) -> None:
        """End the connection: the answer cannot be completed."""
        if not self.gone:
            self.leave()
            self._connection.cut_off()

    # --- what the connection calls -----------------------------------------------------------------------

    def body_came(self, piece: bytes) -> bool:
        """Returns whether enough is here until the API asks for more."""
        self._may_ask = False
        if not self._body:
            self._body = piece
        else:
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
            self._body += piece
        self._wake()
        return len(self._body) > MOST_UNREAD_BYTES

    def body_ended(self) -> None:
        self.whole = True
        self._may_ask = False
        self._wake()

    def leave(self) -> None:
        """Gives up a request whose answer is no longer wanted."""
        if not self.answered:
            self.gone = True
            self._wake()

    def _ask(self) -> None:
        if self._may_ask and not self.gone:
            self._may_ask = False
            self._connection.write(CONTINUE)

    async def _change(self) -> None:
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._changed)

    def _wake(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None and not changed.done():
            changed.set_result(None)
