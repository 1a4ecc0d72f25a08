"""An HTTP/1.1 connection: reads requests, writes responses in order, and limits the resources that a peer can use.

    idle ──a request begins──► head ──► body ──► idle, and so on
      │ keep_alive               │ too long, too large, too slow, malformed
      ▼                          ▼
    closed                     refused: what came before is answered, then the refusal is sent, then the end

One request is answered at a time; later ones wait.  The API handles its own paths, an ASGI application all others.
"""

import asyncio
import logging
import select
import sys
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, Protocol, cast

from broker.net.http1.asgi import Application, serve_application
from broker.net.http1.exchange import Exchange
from broker.net.http1.head import SERVED, Head, KnownHeads
from broker.net.http1.patience import Pace, Patience
from broker.net.http1.reader import BODY, IDLE, Refusal, RequestReader
from broker.net.http1.request_ids import HEADER, RequestIds, sane_id
from broker.net.http1.responses import FAULT, closing_answer, error_answer
from broker.net.http1.web_pages import WebPages
from broker.net.limits.open_connections import address_in
from broker.net.limits.payload import MAX_PAYLOAD_BYTES
from broker.net.tls.client_certificate import client_certificate
from broker.observability.log import extra

MAX_PATH_BYTES = 4_096  # percent-encoded, four times the longest name; it is read before authentication
MAX_UNWANTED_BYTES = 2 * MAX_PAYLOAD_BYTES  # of a body that arrives although its request was answered
_SMALL_ANSWER_BYTES = 16_384  # a record of TLS
# In asyncio 3.12.0 to 3.13.1 writelines never reports that the buffer is full (CPython 127655).
_NAMES_LINES = not (3, 12) <= sys.version_info < (3, 13, 2)
_PIECE_BYTES = 1024  # parsed at a time where another request may begin: at most about 40 requests
logger = logging.getLogger("broker.calls")


# The peer sends no more (Linux).  On other systems poll only reports a connection that is closed on both sides.
_SENDS_NO_MORE = getattr(select, "POLLRDHUP", 0)


def _has_hung_up(transport: asyncio.Transport) -> bool:
    """Whether nothing more will come from the peer than what is here.  A system call that does not wait.

    A transport that does not read is told nothing: the end comes behind what it has not read.
    """
    sock = transport.get_extra_info("socket")
    if sock is None or sock.fileno() < 0:
        return False
    poll = select.poll()
    poll.register(sock.fileno(), _SENDS_NO_MORE)
    return bool(poll.poll(0))


class Http1Api(Protocol):
    """The interface of the API that answers the hot calls."""

    def has(self, path: bytes) -> bool:
        """Whether a path, as it was sent, is the API's to answer."""

    def serve(self, exchange: Exchange) -> Coroutine[Any, Any, None]:
        """Answer a request, whatever happens."""

    def failed(self, exchange: Exchange, error: Exception) -> None:
        """Tell of a defect that kept a request from its answer."""


class Registry(Protocol):
    """The server's set of connections, each of which it can shut down."""

    def add(self, connection: "Http1Connection", /) -> None: ...
    def discard(self, connection: "Http1Connection", /) -> None: ...


class Http1Server:
    """The state that the HTTP/1.1 connections of a process share.

    When the server stops, `connections` are shut down and `tasks` are awaited.  `keep_alive()`: seconds when idle.
    """

    def __init__(
        self,
        api: Http1Api,
        app: Application,
        state: dict[str, Any],
        *,
        pages: WebPages,
        connections: Registry,
        tasks: set[asyncio.Task[Any]],
        keep_alive: Callable[[], float],
    ) -> None:
        self.api = api
        self.pages = pages
        self.app = app
        self.state = state
        self.connections = connections
        self.tasks = tasks
        self.keep_alive = keep_alive
        self.heads = KnownHeads()
        self.request_ids = RequestIds()

    def answer(
        self, exchange: Exchange, transport: asyncio.Transport, *, secure: bool
    ) -> Coroutine[Any, Any, None]:
        """The work of answering a request that came over a connection; `secure`: it speaks TLS."""
        head = exchange.head
        verdict = head.verdict
        if verdict is None:
            verdict = head.verdict = self.pages.judge(head)
            head.request_id = sane_id(head.header(HEADER))
        request_id = exchange.request_id = head.request_id or self.request_ids.make()
        exchange.headers = b"%bx-request-id: %b\r\n" % (verdict.headers, request_id)
        if len(head.path) > MAX_PATH_BYTES:
            return _refuse(exchange, 414, f"The path of the URL is longer than {MAX_PATH_BYTES} bytes.")
        if verdict is not SERVED and not self.pages.serves(verdict, secure=secure):
            return self.pages.answer(exchange, verdict)
        if self.api.has(head.path):
            return self.api.serve(exchange)
        own = address_of(transport.get_extra_info("sockname"))
        return serve_application(self.app, exchange, own, self.state, failed=self.api.failed)


class Http1Connection(asyncio.Protocol):
    """`transport` is there from `connection_made` on."""

    pace: ClassVar[Pace] = Pace()

    def __init__(self, server: Http1Server) -> None:
        self._server = server
        self._reader = RequestReader(self)
        self._patience = Patience(self.pace)
        self._current: Exchange | None = None  # the exchange that is being answered
        self._waiting: deque[Exchange] = deque()  # exchanges after it
        self._newest: Exchange | None = None  # the exchange whose body is being read
        self._unfed = b""  # read while requests wait, and not parsed yet
        self._fed = 0  # bytes of _unfed that are parsed
        self._fault: Refusal | None = None  # the error that ends the connection
        self._stopping = False  # the connection ends after the present requests
        self._ending = False  # the last response was written; further input is dropped
        self._reading_paused = self._was_paused = False  # the latter since the last check
        self._writable: asyncio.Future[None] | None = None  # for tasks that wait to write
        self._is_full = False  # the maximum of unread responses is reached
        self._stuck: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None  # of the current request
        self.received = 0  # bytes of bodies, of the answered ones too
        self._unwanted = 0

    # --- what the event loop and the server call ---------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = cast(asyncio.Transport, transport)
        self.peer = address_of(transport.get_extra_info("peername"))
        self.address = address_in(self.peer)
        self.client_certificate = client_certificate(transport)
        self._is_secure = transport.get_extra_info("ssl_object") is not None
        self._server.connections.add(self)
        self._timer = self._loop.call_later(self.pace.check, self.check)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        self._timer.cancel()
        self._ending = True
        self._unfed = b""
        self._waiting.clear()
        for exchange in (self._current, self._newest):
            if exchange is not None:
                exchange.leave()
        self.resume_writing()

    def data_received(self, data: bytes) -> None:
        if self._ending or self._fault or self._reader.is_over:
            return
        if self._unfed or self._waiting:
            self._unfed = self._unfed[self._fed :] + data
            self._fed = 0
            self._pause_reading()
        elif self._reader.phase != IDLE:
            self._feed(data, 0)
        elif known := self._server.heads.find(data):
            head, body = known
            self._reader.number += 1
            self.received += len(body)
            self._take(Exchange(self, head, body, whole=True))
        else:
            reader, number = self._reader, self._reader.number
            self._feed(data, 0)
            if reader.phase == IDLE and reader.number == number + 1 and not (self._unfed or self._fault):
                self._server.heads.remember(data, reader.head)

    def eof_received(self) -> None:
        """Handles a client that closes its side as one that is gone: the transport closes itself."""

    def pause_writing(self) -> None:
        self._is_full = True
        self._stuck = self._loop.call_later(self.pace.answer, self._transport.abort)

    def resume_writing(self) -> None:
        self._is_full = False
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None
        waiter, self._writable = self._writable, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
        if self._current is None:
            self._go_on()

    def shutdown(self) -> None:
        """Close, after the requests that are here were answered."""
        self._stopping = True
        if self._ending:
            if not self._transport.get_write_buffer_size():
                self._transport.abort()
        elif self._current is None and not self._waiting:
            self._close()

    # --- reading -----------------------------------------------------------------------------------------

    def _feed(self, data: bytes, at: int) -> None:
        """Parse up to where requests begin to wait for their turn; the rest once they had it."""
        view, end, reader = memoryview(data), len(data), self._reader
        try:
            while at < end and not (self._waiting or self._ending):
                size = max(reader.left, _PIECE_BYTES) if reader.phase == BODY else _PIECE_BYTES
                piece = view[at : at + size]
                at += size
                reader.feed(piece)
        except Refusal as refusal:
            self._refuse(refusal)
            return
        self._unfed, self._fed = (b"", 0) if at >= end or self._ending else (data, at)
        if self._unfed:
            self._pause_reading()

    def request_begun(self, head: Head) -> None:
        self._newest = Exchange(self, head)
        self._unwanted = 0
        self._take(self._newest)

    def body_came(self, piece: bytes) -> None:
        self.received += len(piece)
        exchange = self._newest
        assert exchange is not None
        if exchange.answered or exchange.gone:
            self._unwanted += len(piece)
            if self._unwanted > MAX_UNWANTED_BYTES:
                self._transport.abort()
        elif exchange.body_came(piece):
            self._pause_reading()

    def request_ended(self) -> None:
        exchange, self._newest = self._newest, None
        if exchange is not None:
            exchange.body_ended()

    def _pause_reading(self) -> None:
        self._was_paused = True
        if not self._reading_paused:
            self._reading_paused = True
            self._transport.pause_reading()

    def read_on(self) -> None:
        if self._reading_paused and not self._unfed:
            self._reading_paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()

    # --- answering ---------------------------------------------------------------------------------------

    def _take(self, exchange: Exchange) -> None:
        if self._current is None and not self._is_full:
            self._start(exchange)
        else:
            self._waiting.append(exchange)
            self._pause_reading()

    def _start(self, exchange: Exchange) -> None:
        self._current = exchange
        server = self._server
        work = server.answer(exchange, self._transport, secure=self._is_secure)
        task = self._task = self._loop.create_task(work)
        server.tasks.add(task)
        task.add_done_callback(self._served)

    def _served(self, task: asyncio.Task[None]) -> None:
        self._server.tasks.discard(task)
        exchange = self._current
        if task is not self._task or exchange is None or exchange.gone:
            return
        if task.cancelled():  # before it had begun
            exchange.respond(*error_answer(503, "The broker stops; try again."))
        else:
            error = task.exception()
            self._server.api.failed(exchange, error if isinstance(error, Exception) else RuntimeError("no answer"))
            exchange.respond(*error_answer(500, FAULT))

    def write(self, *parts: bytes) -> None:
        # Small responses are sent in one piece, because over TLS each write is a record.
        if len(parts) > 1 and sum(map(len, parts)) <= _SMALL_ANSWER_BYTES:
            parts = (b"".join(parts),)
        if len(parts) > 1 and _NAMES_LINES:
            self._transport.writelines(parts)  # in one system call, so that its reader wakes once
            return
        for part in parts:
            self._transport.write(part)

    async def writable(self) -> None:
        """Waits until there is room for more of an answer, or the peer is gone."""
        while self._is_full:
            if self._writable is None:
                self._writable = self._loop.create_future()
            await asyncio.shield(self._writable)

    def ends_now(self) -> bool:
        """Whether the connection ends with the answer to the current request."""
        return self._stopping and not self._waiting

    def answered(self, *, last: bool) -> None:
        self._current = None
        if last:
            self._end()
        elif not self._is_full:
            self._go_on()

    def _go_on(self) -> None:
        """Continues after an answer with the next request, or the end."""
        if self._ending:
            return
        if self._waiting:
            self._start(self._waiting.popleft())
            if self._waiting:
                return
        if self._fault:
            if self._current is None:
                self._end(self._fault)
        else:
            data, self._unfed = self._unfed, b""
            self.read_on()
            if data:
                self._feed(data, self._fed)

    # --- the end -----------------------------------------------------------------------------------------

    def _refuse(self, refusal: Refusal) -> None:
        """Answer what came before the request that is being read, then say what is wrong with it."""
        self._fault = refusal
        self._unfed = b""
        exchange, self._newest = self._newest, None
        if exchange is not None:  # its head was valid
            if self._waiting:
                self._waiting.pop()
            elif exchange is self._current and not exchange.begun:
                exchange.leave()
                self._current = None
            else:  # answered already: the peer expects nothing more
                self._close()
                return
        if self._current is None:
            self._end(refusal)
        else:
            self.read_on()  # further input is dropped, and the end of the connection is noticed

    def _end(self, refusal: Refusal | None = None) -> None:
        """Close; a peer that still sends would lose the last answer if that were at once."""
        if self._ending:
            return
        still_sends = refusal is not None or self._newest is not None or self._reading_paused
        if refusal is not None:
            request_id = self._server.request_ids.make()
            logger.debug("refused a request: %s", refusal.reason, extra=extra({}, request_id))
            self._transport.write(closing_answer(refusal.status, refusal.reason, request_id))
        if not still_sends:
            self._close()
            return
        self._ending = True
        self._unfed = b""
        self._transport.write_eof()
        self.read_on()
        self._abort_in_time()

    def _close(self) -> None:
        """Close, once the peer has taken what was written."""
        self._ending = True
        self._transport.close()
        self._abort_in_time()

    def _abort_in_time(self) -> None:
        """Aborts the connection after a while, so that a peer which takes nothing does not keep it for ever."""
        has_more_to_take = self._transport.get_write_buffer_size() > 0
        self._timer.cancel()
        self._timer = self._loop.call_later(
            self.pace.answer if has_more_to_take else self.pace.linger, self._transport.abort
        )

    def cut_off(self) -> None:
        self._transport.abort()

    def check(self) -> None:
        """Compare what has come with what had at the last check; has a peer gone that is not read?"""
        if self._ending or self._fault:
            return
        if self._reading_paused and _has_hung_up(self._transport):
            self._transport.abort()
            return
        self._timer = self._loop.call_later(self.pace.check, self.check)
        held_up = self._was_paused or self._reading_paused or bool(self._unfed)
        self._was_paused = self._reading_paused
        reader = self._reader
        try:
            if self._patience.has_run_out(
                number=reader.number,
                phase=reader.phase,
                received=self.received,
                held_up=held_up,
                answering=self._current is not None,
                keep_alive=self._server.keep_alive(),
            ):
                self._close()
        except Refusal as refusal:
            self._refuse(refusal)


async def _refuse(exchange: Exchange, status: int, reason: str) -> None:
    exchange.respond(*error_answer(status, reason))


def address_of(name: object) -> tuple[str, int] | None:
    """Host and port of a socket, as far as they are known."""
    return (str(name[0]), int(name[1])) if isinstance(name, tuple) and len(name) > 1 else None
