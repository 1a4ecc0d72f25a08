"""A connection to an endpoint: HTTP/1.1, one request at a time.

httptools parses the answers, as in uvicorn; answers that it refuses are parsed again by h11 (second_reading.py).

    idle ──send──► waiting ──status and headers──► answered ──end of the body──► idle, if both sides keep it alive
      └───────────────┴── closed by the other side, broken, given up ──┴──► closed

Interim answers (1xx) are skipped, except 102, which Pub/Sub counts as success and which is then the answer.
"""

import asyncio
import errno
import ssl
from typing import cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from broker.core.pushing.client.second_reading import SecondReading, looks_like_http

MAX_HEAD = 64 * 1024  # bytes of status line and headers, with all interim answers
MAX_BODY = 64 * 1024  # bytes of a body that are kept; a connection with more to come is closed
_MAX_AROUND_BODY = 8 * MAX_BODY  # bytes of chunk sizes and trailers, enough for bodies of tiny chunks
PROCESSING = 102  # https://www.rfc-editor.org/rfc/rfc2518#section-10.1

_CLOSED = "the connection was closed before an answer"
_ERRNOS = {errno.ECONNREFUSED: "connection refused", errno.ECONNRESET: "connection reset"}


class ConnectionLost(Exception):
    """The connection ended before the answer's status.  `untouched`: not a byte of an answer came."""

    def __init__(self, reason: str, *, untouched: bool) -> None:
        super().__init__(reason)
        self.untouched = untouched


class Connection(asyncio.Protocol):
    """An HTTP/1.1 connection.

    Of the answer to the current request it has `status` (0: nothing yet), `retry_after`, `date`, `body`,
    `complete`.
    """

    def __init__(self) -> None:
        self.idle_since = 0.0  # in the loop's time; set by the pool
        self.reusable = True  # False also while a request is in hand
        self._parser = HttpResponseParser(self)
        self._second: SecondReading | None = None  # replaces the parser for an answer that it refused
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._wants_end = False
        self._lost: str | None = None
        self._forget()

    def _forget(self) -> None:
        self.status = 0
        self.retry_after = self.date = b""
        self.body = b""
        self.complete = False
        self._keep_alive = False
        self._head = b""  # received before the status, with all interim answers
        self._body_bytes = 0  # as received, after the packet with the status

    # What the pool calls.

    async def send(self, request: bytes) -> None:
        """Send a request and wait for the status of its answer.  Raises ConnectionLost."""
        self._forget()
        self.reusable = False
        if self._lost is None and self._transport is not None:
            self._transport.write(request)
            await self._wait(for_end=False)
        if not self.status:
            reason = self._lost or _CLOSED
            raise ConnectionLost(reason, untouched=not self._head)

    async def end_of_body(self) -> None:
        """Wait for the end of the body, or for as much of it as is kept."""
        while not self._ended:
            await self._wait(for_end=True)

    def finish(self) -> None:
        """Done with the answer: the connection is reusable from now on, or closed."""
        transport = self._transport
        if self.complete and self._keep_alive and self._lost is None and transport is not None:
            self.reusable = not transport.is_closing() and transport.get_write_buffer_size() == 0
        if not self.reusable:
            self.abort()

    def abort(self) -> None:
        """Close at once, whatever is under way."""
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()

    @property
    def _ended(self) -> bool:
        return self.complete or len(self.body) >= MAX_BODY or self._lost is not None

    async def _wait(self, *, for_end: bool) -> None:
        self._wants_end = for_end
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done() and (self._ended or not self._wants_end):
            self._waiter.set_result(None)

    def _lose(self, reason: str) -> None:
        if self._lost is None:
            self._lost = reason
        self.abort()
        self._wake()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._lose(describe(error) if error else _CLOSED)
        self._transport = None

    def eof_received(self) -> None:
        self.reusable = False  # and the transport closes itself

    def data_received(self, data: bytes) -> None:
        if self.reusable:  # unsolicited bytes cannot be the answer to a later request
            self._lose("the endpoint sent something without a request")
            return
        if not self.status:
            self._head += data
        else:
            self._body_bytes += len(data)
        if self._second is not None:
            self._read_again(self._second, data)
        else:
            self._parse(data)
        if self.status:
            self._head = b""
            if self._body_bytes > MAX_BODY + _MAX_AROUND_BODY:  # the parser would keep a trailer of any size
                self.complete, self._keep_alive = True, False
                self.abort()
            self._wake()
        elif len(self._head) > MAX_HEAD:
            self._lose(f"the answer's headers have more than {MAX_HEAD} bytes")

    def _parse(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:  # 101: it was not requested
            self.complete = True
        except HttpParserError as error:
            if self.status:
                self.complete, self._keep_alive = True, False  # the body is invalid; the status remains
            elif looks_like_http(self._head):
                self._second = SecondReading(MAX_HEAD, frozenset({PROCESSING}))
                self._read_again(self._second, self._head)
            else:
                self._lose(f"the answer is not HTTP: {error}")

    def _read_again(self, second: SecondReading, data: bytes) -> None:
        """Do not reuse the connection: where the next answer on it begins is uncertain."""
        second.feed(data)
        if second.refusal:
            self._lose(f"the answer is not valid HTTP/1.1: {second.refusal}")
        elif second.status:
            self.status, self.complete = second.status, second.complete
            self.retry_after, self.date = second.headers.get(b"retry-after", b""), second.headers.get(b"date", b"")
            self.body = second.body[:MAX_BODY]

    # What the parser calls.

    def on_message_begin(self) -> None:
        if self.complete:
            self._keep_alive = False  # more than was requested

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(name) == 11 and name.lower() == b"retry-after":
            self.retry_after = value
        elif len(name) == 4 and name.lower() == b"date":
            self.date = value

    def on_headers_complete(self) -> None:
        if self.status:  # a second answer to one request
            return
        status = self._parser.get_status_code()
        if status == PROCESSING:
            self.status, self.complete = status, True  # anything after it is ignored
        elif status >= 200 or status == 101:
            self.status = status
        else:
            self.retry_after = self.date = b""

    def on_body(self, data: bytes) -> None:
        if not self.complete and len(self.body) < MAX_BODY:
            self.body += data[: MAX_BODY - len(self.body)]

    def on_message_complete(self) -> None:
        if self.status and not self.complete:
            self.complete = True
            self._keep_alive = self._parser.should_keep_alive()


def describe(error: Exception) -> str:
    """Describes an error in one line for people: the system's words for an errno, OpenSSL's for a certificate."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or error}"
    if isinstance(error, OSError) and error.errno is not None and error.strerror:
        return _ERRNOS.get(error.errno, error.strerror)
    return " ".join(str(error).split()) or type(error).__name__
