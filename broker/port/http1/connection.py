"""A connection that speaks HTTP/1.1: uvicorn's protocol, with bounds on what a peer may take of the process.

    idle ──a request begins──► head ──► body ──► idle, and so on
      │ Pace.keep_alive          │ too long, too large, too slow, malformed
      ▼                          ▼
    closed                     refused: what came before is answered, then the refusal is sent, then the end

uvicorn has none of these bounds but the first, and reads on while pipelined requests wait for their turn.  A look
every few seconds at what has come since the last takes the place of timers for each request.
"""

import asyncio
import json
import logging
from dataclasses import dataclass
from typing import ClassVar, cast

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from broker.domain.payload import MAX_PAYLOAD_BYTES
from broker.port.http1.one_write import OneWrite

MAX_HEAD_BYTES = 65_536  # of a request; of all that is no body: trailers, extensions of chunks, empty lines
MAX_HEADERS = 256
MAX_UNWANTED_BYTES = 2 * MAX_PAYLOAD_BYTES  # of a body that comes although its request is answered
_LOOKED_AT = frozenset([b"host", b"content-length", b"expect", b"transfer-encoding", b"upgrade"])
_TOO_MANY_HEADERS = f"The request has more than {MAX_HEADERS} headers."
_IDLE, _HEAD, _BODY = range(3)  # phases; an Enum's members cost a call each, several times a request
_PIECE_BYTES = 1024  # what is parsed at a time where another request may begin: at most some 40 of them
logger = logging.getLogger("broker.calls")

_CODES = {408: "DEADLINE_EXCEEDED", 501: "UNIMPLEMENTED", 505: "UNIMPLEMENTED"}  # else INVALID_ARGUMENT


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a peer may take, in seconds."""

    look: float = 10.0  # a head, or so many bytes of a body, may take from one look to the next but one
    body_bytes: int = 10_240  # from one look to the next: 1 KB a second
    keep_alive: float = 75.0
    answer: float = 120.0  # for 13 MB at most: slower than a megabit a second is too slow
    linger: float = 5.0  # for a peer that still sends to read why it was refused


class _Flow(FlowControl):
    """Reading stays paused while it is `held`, whoever resumes it."""

    held = False
    was_paused = False  # since the last look

    def pause_reading(self) -> None:
        self.was_paused = True
        super().pause_reading()

    def resume_reading(self) -> None:
        if self.read_paused and not self.held:
            super().resume_reading()

    def hold(self, held: bool) -> None:
        self.held = held
        if held:
            self.pause_reading()
        else:
            self.resume_reading()


class Http1Protocol(HttpToolsProtocol):
    """For uvicorn.Config(http=…), without WebSockets."""

    pace: ClassVar[Pace] = Pace()
    flow: _Flow
    _stuck: asyncio.TimerHandle | None = None
    _running: RequestResponseCycle | None = None  # the request that is being answered; self.cycle is the newest
    _phase = _IDLE
    _quiet = 0  # bytes since the last of a body, or the beginning or end of a request
    _left = 0  # of a body whose length was given
    _chunked = False
    _hosts = 0
    _upgrade = False  # the request asks for another protocol
    _unparsed_body = False
    _unfed = b""  # read while requests wait for their turn, not parsed yet
    _fed = 0  # bytes of _unfed that are parsed
    _fault: tuple[int, str] | None = None  # why the request that is being read is refused
    _refused = False
    # For the looks:
    _number = 0  # of requests that have begun
    received = 0  # bytes of bodies, of the answered ones too
    _unwanted = 0
    _seen = (0, _IDLE, 0)
    _idle_looks = 0

    # --- the connection ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, OneWrite(cast(asyncio.Transport, transport))))
        self.flow = _Flow(self.transport)
        self._timer = self.loop.call_later(self.pace.look, self.look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self._not_stuck()
        self._tell(self._running)
        self.pipeline.clear()
        self._unfed = b""
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck = self.loop.call_later(self.pace.answer, self.transport.abort)

    def resume_writing(self) -> None:
        self._not_stuck()
        super().resume_writing()

    def shutdown(self) -> None:
        if self._refused:
            self.transport.abort()
        else:
            super().shutdown()

    def _not_stuck(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    @staticmethod
    def _tell(cycle: RequestResponseCycle | None) -> None:
        """That nobody waits for its answer any more."""
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()

    # --- reading -----------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._refused or self._fault:
            return
        if self._unfed or self.pipeline:
            self._unfed = self._unfed[self._fed :] + data
            self._fed = 0
            self.flow.hold(True)
        elif len(data) <= _PIECE_BYTES:
            self._parse(data)
        else:
            self._feed(data, 0)

    def _feed(self, data: bytes, at: int) -> None:
        """Parse up to where requests begin to wait for their turn; the rest once they had it."""
        view, end = memoryview(data), len(data)
        while at < end and not self.pipeline and not (self._refused or self._fault):
            size = max(self._left, _PIECE_BYTES) if self._phase == _BODY else _PIECE_BYTES
            self._parse(view[at : at + size])
            at += size
        is_over = at >= end or self._refused or self._fault
        self._unfed, self._fed = (b"", 0) if is_over else (data, at)
        if self._unfed or self.flow.held:
            self.flow.hold(bool(self._unfed))

    def _parse(self, data: bytes | memoryview) -> None:
        if self._unparsed_body:
            taken, data = data[: self._left], data[self._left :]
            self._take_body(bytes(taken))
            if not data:
                return
        self._quiet += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._parse(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self._refuse(*(self._fault or (400, f"The request is not valid HTTP/1.1: {error}.")))
        else:
            if self._phase == _HEAD and len(self.headers) > MAX_HEADERS:
                self._refuse(431, _TOO_MANY_HEADERS)
            elif self._quiet > MAX_HEAD_BYTES:
                in_url = self._phase == _HEAD and not self.headers and len(self.url) > MAX_HEAD_BYTES // 2
                what, status = ("URL", 414) if in_url else ("head", 431)
                self._refuse(status, f"The {what} of the request is longer than {MAX_HEAD_BYTES} bytes.")

    def on_message_begin(self) -> None:
        self._phase = _HEAD
        self._quiet = self._left = self._hosts = 0
        self._chunked = self._upgrade = False
        self._number += 1
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase == _BODY:
            return  # a trailer
        name = name.lower()
        if name in _LOOKED_AT:
            self._on_special_header(name, value)
        self.headers.append((name, value))

    def _on_special_header(self, name: bytes, value: bytes) -> None:
        if name == b"host":
            self._hosts += 1
        elif name == b"content-length":
            self._left = int(value)
        elif name == b"expect":
            self.expect_100_continue = value.lower() == b"100-continue"
        elif name == b"upgrade":
            self._upgrade = True
        elif self._chunked or value.strip().lower() != b"chunked":
            self._object(501, "The broker knows no transfer coding but one that is chunked, once.")
        else:
            self._chunked = True

    def on_headers_complete(self) -> None:
        version = self.parser.get_http_version()
        if version == "1.1":
            if self._hosts != 1:
                self._object(400, "A request of HTTP/1.1 has one Host header.")
        elif version != "1.0":
            self._object(505, f"The broker does not speak HTTP/{version}.")
        elif self._chunked:
            self._object(400, "A request of HTTP/1.0 cannot be chunked.")
        if len(self.headers) > MAX_HEADERS:
            self._object(431, _TOO_MANY_HEADERS)
        if self._upgrade and self._chunked and self.parser.should_upgrade():
            self._object(501, "The broker reads no chunked request that asks for another protocol.")
        super().on_headers_complete()
        self._phase = _BODY
        if not self.pipeline:
            self._running = self.cycle

    def on_body(self, body: bytes) -> None:
        size = len(body)
        self._quiet = 0
        self._left -= size
        self.received += size
        if self.cycle.response_complete:
            self._unwanted += size
            if self._unwanted > MAX_UNWANTED_BYTES:
                self.transport.abort()
        else:
            super().on_body(body)

    def _take_body(self, body: bytes) -> None:
        """On a request to upgrade the parser stops after the head, as if the body were the other protocol's.

        To h2c, for instance, which clients in Java ask for.  A server is free to stay with what it speaks.
        """
        self.on_body(body)
        if not self._left:
            self._unparsed_body = False
            self.on_message_complete()

    def on_message_complete(self) -> None:
        if self._upgrade and self._left > 0:
            self._unparsed_body = True
            return
        self._phase = _IDLE
        self._quiet = self._unwanted = 0
        super().on_message_complete()

    def _object(self, status: int, reason: str) -> None:
        """Refuse the request that is being read, by an error of the parser."""
        self._fault = status, reason
        raise ValueError(reason)

    # --- answering ---------------------------------------------------------------------------------------

    def on_response_complete(self) -> None:
        """As uvicorn's, without its timer, and with what is left to be parsed."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._running, app = self.pipeline.pop()
            self._start_asgi_task(self._running, app)
        if self.pipeline:
            return
        if self._fault:
            if not self._is_answering():
                self._end(*self._fault)
        elif self._unfed:
            self._feed(self._unfed, self._fed)
        elif self.flow.held:
            self.flow.hold(False)

    def _is_answering(self) -> bool:
        return self._running is not None and not self._running.response_complete

    def _refuse(self, status: int, reason: str) -> None:
        """Answer what came before the request that is being read, then say what is wrong with it."""
        if self._refused:
            return
        self._fault = status, reason
        self._unfed = b""
        if self._phase == _BODY:  # it has a cycle
            if self.pipeline:
                self.pipeline.popleft()
            elif self._running is not None and not self._running.response_started:
                self._tell(self._running)
                self._running = None
            else:  # answered already: its peer expects nothing more
                self.transport.close()
                return
        self._phase = _IDLE  # nothing more is read
        if self._is_answering():
            self.flow.hold(False)  # what comes now is dropped; that the peer has gone is noticed
        else:
            self._end(status, reason)

    def _end(self, status: int, reason: str) -> None:
        """Say it, and close; a peer that still sends would lose the answer if that were at once."""
        self._refused = True
        self.url, self.headers = b"", []
        logger.debug("refused a request: %s", reason)
        error = {"code": status, "message": reason, "status": _CODES.get(status, "INVALID_ARGUMENT")}
        body = json.dumps({"error": error}).encode()
        self.transport.write(
            STATUS_LINE[status] + b"content-type: application/json; charset=UTF-8\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%s" % (len(body), body)
        )
        self.transport.write_eof()
        self.flow.hold(False)
        self._timer.cancel()
        self._timer = self.loop.call_later(self.pace.linger, self.transport.abort)

    # --- looking -----------------------------------------------------------------------------------------

    def look(self) -> None:
        """Compare what has come with what had at the last look."""
        self._timer = self.loop.call_later(self.pace.look, self.look)
        number, phase, received = self._seen
        self._seen = self._number, self._phase, self.received
        was_paused, self.flow.was_paused = self.flow.was_paused, self.flow.read_paused
        if self._number != number or was_paused or self.flow.read_paused or self._unfed:
            self._idle_looks = 0
        elif self._phase == _BODY:
            if phase == _BODY and self.received - received < self.pace.body_bytes:
                rate = self.pace.body_bytes / self.pace.look
                self._refuse(408, f"The body of the request came slower than {rate:.0f} bytes a second.")
        elif self._is_answering():
            self._idle_looks = 0
        elif self._phase == _HEAD:
            if phase == _HEAD:
                self._refuse(408, f"The head of the request took longer than {self.pace.look:.0f} seconds.")
        else:
            self._idle_looks += 1
            if self._idle_looks * self.pace.look >= self.pace.keep_alive:
                self.transport.close()
