"""Requests over HTTP/2 that are not gRPC: the same exchanges as over HTTP/1.1, one for each stream.

arriving ──END_STREAM──► whole ──respond, or end──► answered ──all was taken──► the stream is closed
   └──────────┴── the caller has reset the stream, or gone ──► gone
"""

import asyncio
import re
from collections.abc import Iterator

from broker.model.client_certificate import ClientCertificate
from broker.net.http1.connection import Http1Server, address_of
from broker.net.http1.exchange import WITHOUT_BODY, Exchange
from broker.net.http1.head import Head
from broker.net.http1.responses import FAULT, error_answer
from broker.net.http2.connection import Http2Connection
from broker.net.http2.frames import Code
from broker.net.http2.headers import RequestHeaders, encode_headers
from broker.net.http2.stream import NOBODY, Receiver, Stream

MAX_RUNNING = 2_000  # requests of a connection, including those that their callers have cancelled
MAX_UNREAD_BYTES = 16_777_216  # of bodies of a connection that no API has read yet
MOST_TICKS = 3  # of the connection (20 s): the time for a body to arrive, and for a response to be read

_METHOD = re.compile(rb"[A-Z]{1,20}")
_PATH = re.compile(rb"/[!-~]*")
_FORBIDDEN = re.compile(rb"[\x00\r\n]")  # in the value of a header (RFC 9113, section 8.2.1)


class Http2Requests:
    """The state that the requests of one connection share."""

    def __init__(self, server: Http1Server, connection: Http2Connection) -> None:
        self.server = server
        self.connection = connection
        self.unread = 0  # bytes
        self.running = 0

    def accept(self, stream: Stream) -> Receiver:
        """Begin to answer a request; returns the receiver of its stream."""
        head = _head_of(stream.headers)
        if head is None:
            stream.reset(Code.PROTOCOL_ERROR)
            return NOBODY
        request = _Request(self, stream, head)
        if self.running >= MAX_RUNNING:
            request.refuse("Too many requests of this connection are under way; try again.")
        else:
            request.start()
        return request


class _Request:
    """A stream, as the connection and the exchange see it."""

    def __init__(self, requests: Http2Requests, stream: Stream, head: Head) -> None:
        self._requests = requests
        self._stream = stream
        self._unread = 0  # bytes that were not returned to the window yet
        self._ticks = 0
        self._exchange = Http2Exchange(self, stream, head)
        self._task: asyncio.Task[None] | None = None

    def refuse(self, reason: str) -> None:
        self._exchange.respond(*error_answer(503, reason))

    def start(self) -> None:
        self._requests.running += 1
        server, connection = self._requests.server, self._requests.connection
        work = server.answer(self._exchange, connection.transport, secure=connection.is_secure)
        self._task = asyncio.get_running_loop().create_task(work)
        server.tasks.add(self._task)
        self._task.add_done_callback(self._served)

    def _served(self, task: asyncio.Task[None]) -> None:
        server, exchange = self._requests.server, self._exchange
        server.tasks.discard(task)
        self._requests.running -= 1
        if exchange.answered or exchange.gone:
            return
        if task.cancelled():
            exchange.respond(*error_answer(503, "The broker stops; try again."))
        else:
            error = task.exception()
            server.api.failed(exchange, error if isinstance(error, Exception) else RuntimeError("no answer"))
            exchange.respond(*error_answer(500, FAULT))

    # --- the stream's receiver ---------------------------------------------------------------------------

    def data(self, payload: bytes) -> None:
        if self._exchange.answered or self._exchange.gone:
            self._stream.consumed(len(payload))
            return
        is_enough = self._exchange.body_came(payload)
        self._unread += len(payload)
        self._requests.unread += len(payload)
        if not is_enough:
            self.read_on()
        elif self._requests.unread > MAX_UNREAD_BYTES:
            self.refuse("This connection sends more than is read; try again.")

    def ended(self) -> None:
        self._ticks = 0
        self._exchange.body_ended()

    def gone(self) -> None:
        self.read_on()
        self._exchange.leave()

    def tick(self) -> None:
        exchange = self._exchange
        is_waiting = exchange.whole and not exchange.answered  # for its response, which may take any time
        self._ticks = 0 if is_waiting else self._ticks + 1
        if self._ticks <= MOST_TICKS:
            return
        if exchange.answered:
            self._stream.reset(Code.ENHANCE_YOUR_CALM)
        else:
            exchange.respond(*error_answer(408, "The body of the request did not arrive within a minute."))

    def stop(self) -> None:
        """Does nothing: requests that have arrived are answered."""

    # --- the exchange's connection -----------------------------------------------------------------------

    @property
    def peer(self) -> tuple[str, int] | None:
        return address_of(self._requests.connection.peer_address())

    @property
    def client_certificate(self) -> ClientCertificate | None:
        return self._requests.connection.client_certificate

    def write(self, *parts: bytes) -> None:
        """Raises NotImplementedError: only HTTP/1.1 writes parts as they are."""
        raise NotImplementedError

    def read_on(self) -> None:
        unread, self._unread = self._unread, 0
        self._requests.unread -= unread
        if unread:
            self._stream.consumed(unread)

    def ends_now(self) -> bool:
        return False

    def answered(self, *, last: bool) -> None:
        self._ticks = 0
        self.read_on()

    def cut_off(self) -> None:
        self._stream.reset(Code.INTERNAL_ERROR)

    async def writable(self) -> None:
        await self._stream.drained()


class Http2Exchange(Exchange):
    """An exchange whose answer is frames: its head is a header block, and there is no framing in its body."""

    __slots__ = ("_stream",)

    def __init__(self, request: _Request, stream: Stream, head: Head) -> None:
        super().__init__(request, head)
        self._stream = stream

    def respond(self, status: int, headers: bytes, body: bytes) -> None:
        if self.gone or self.answered:
            return
        if self.begun:
            self.cut_off()
            return
        self.begin(status, headers, length=len(body))
        self.send(body)
        self.end()

    def begin(self, status: int, headers: bytes, *, length: int | None = None) -> None:
        if self.gone:
            return
        self.begun = True
        self._is_bodiless = self.head.method == "HEAD" or status in WITHOUT_BODY
        fields = [(b":status", b"%d" % status), *_fields(headers), *_fields(self.headers)]
        if length is not None and status not in WITHOUT_BODY:
            fields.append((b"content-length", b"%d" % length))
        self._stream.send_headers(encode_headers(*fields))

    def send(self, part: bytes) -> None:
        if part and not (self.gone or self._is_bodiless):
            self._stream.send_data(part)

    def end(self) -> None:
        self._stream.end()
        self._finish(last=False)


def _fields(lines: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The headers in lines of HTTP/1.1."""
    for line in lines.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        if colon:
            yield name.lower(), value.strip()


def _head_of(headers: RequestHeaders) -> Head | None:
    """The head as it would have come over HTTP/1.1; None: it is malformed."""
    fields = headers.fields
    method, target = fields[b":method"], fields[b":path"]
    if not (_METHOD.fullmatch(method) and _PATH.fullmatch(target)):
        return None
    if any(map(_FORBIDDEN.search, fields.values())):
        return None
    path, _, query = target.partition(b"#")[0].partition(b"?")
    named = {name: value for name, value in fields.items() if not name.startswith(b":")}
    if b":authority" in fields:
        named[b"host"] = fields[b":authority"]
    length = named.get(b"content-length", b"")
    return Head(
        method=method.decode("ascii"),
        path=path,
        query=query,
        version="2",
        headers=list(named.items()),
        length=int(length) if length.isdigit() and len(length) < 20 else None,
        keep_alive=True,
        expects_continue=False,
        encoding=named.get(b"content-encoding", b""),
    )
