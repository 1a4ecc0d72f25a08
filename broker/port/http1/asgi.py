"""An application of ASGI behind an exchange: for what is not hot, and has a framework (health, the specification).

https://asgi.readthedocs.io/en/stable/specs/www.html
"""

import re
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

from broker.port.http1.exchange import Exchange, Gone
from broker.port.http1.responses import FAULT, STATUS_LINES, error_answer

Message = dict[str, Any]
Application = Callable[[Any, Any, Any], Awaitable[None]]

_HEADER = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+: [^\x00-\x08\x0a-\x1f\x7f]*")
_WITHOUT_BODY = {204, 304}


async def serve_application(
    app: Application,
    exchange: Exchange,
    server: tuple[str, int] | None,
    state: dict[str, Any],
    *,
    failed: Callable[[Exchange, Exception], None],
) -> None:
    """Answer by `app`, which finds `state` in its scope.  Of its defects `failed` is told; the caller gets 500."""
    call = _Call(exchange)
    try:
        await app(_scope(exchange, server, state), call.receive, call.send)
    except BaseException as error:
        if isinstance(error, Exception):
            failed(exchange, error)
            call.fail(500, FAULT)
        else:  # the server does that to what is left when it has stopped for long enough
            call.fail(503, "The broker stops; try again.")
            raise
    else:
        if not (exchange.answered or exchange.gone):
            failed(exchange, RuntimeError("The application has given no answer."))
            call.fail(500, FAULT)


def _scope(exchange: Exchange, server: tuple[str, int] | None, state: dict[str, Any]) -> Message:
    head = exchange.head
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": head.version,
        "method": head.method,
        "scheme": "http",
        "path": unquote(head.path.decode("ascii")),
        "raw_path": head.path,
        "query_string": head.query,
        "root_path": "",
        "headers": head.headers,
        "client": exchange.peer,
        "server": server,
        "state": state.copy(),
    }


class _Call:
    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._start: Message = {}
        self._read = self._chunked = False
        self._left: int | None = None  # of a body whose length is known
        self._last = False

    async def receive(self) -> Message:
        exchange = self._exchange
        try:
            if not self._read:
                body, more = await exchange.read()
                self._read = not more
                return {"type": "http.request", "body": body, "more_body": more}
            await exchange.hung_up()
        except Gone:
            pass
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        await self._exchange.taken()
        kind = message["type"]
        if self._exchange.gone:
            return
        if kind == "http.response.start" and not self._start:
            self._start = message
        elif kind == "http.response.body" and self._start and not self._exchange.answered:
            self._send_body(message.get("body", b""), more=message.get("more_body", False))
        else:
            raise RuntimeError(f"{kind} has no place here.")

    def fail(self, status: int, reason: str) -> None:
        """End an answer that the application has not completed."""
        if self._exchange.answered:
            return  # the connection is the next request's; frameworks raise what they have answered by 500
        if self._exchange.begun:
            self._exchange.cut_off()
        else:
            self._exchange.respond(*error_answer(status, reason))

    def _send_body(self, body: bytes, *, more: bool) -> None:
        exchange = self._exchange
        head = b"" if exchange.begun else self._head(len(body), more=more)
        if exchange.head.method == "HEAD" or self._start["status"] in _WITHOUT_BODY:
            body = b""
        elif self._chunked:
            body = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            body += b"" if more else b"0\r\n\r\n"
        elif self._left is not None:
            self._left -= len(body)
            if self._left < 0 or (self._left and not more):
                raise RuntimeError("The body of the answer is not as long as its head says.")
        if head or body:
            exchange.write(head + body)
        if not more:
            exchange.finish(last=self._last)

    def _head(self, size: int, *, more: bool) -> bytes:
        exchange, status = self._exchange, self._start["status"]
        lines = [b"%b: %b" % pair for pair in self._start.get("headers", ())]
        if not all(map(_HEADER.fullmatch, lines)):
            raise RuntimeError("A header of the answer is not valid.")
        length = next((line[16:] for line in lines if line[:16].lower() == b"content-length: "), None)
        self._last = exchange.is_last
        if length is not None:
            self._left = int(length)
        elif not more:
            self._left = size
            if status not in _WITHOUT_BODY:
                lines.append(b"content-length: %d" % size)
        elif exchange.head.version == "1.1":
            self._chunked = True
            lines.append(b"transfer-encoding: chunked")
        else:
            self._last = True  # the end of the connection is the body's
        lines += exchange.headers.splitlines()
        return b"\r\n".join((STATUS_LINES[status], *lines)) + exchange.end_of_head(last=self._last)
