"""Runs an ASGI application on an exchange, for pages that are not hot and use a framework (health, the
specification).

https://asgi.readthedocs.io/en/stable/specs/www.html
"""

import re
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

from broker.net.http1.exchange import WITHOUT_BODY, Exchange, Gone
from broker.net.http1.responses import FAULT, error_answer

CLIENT_CERTIFICATE = "client_certificate"  # the key in the state of a request (None: no certificate)
Message = dict[str, Any]
Application = Callable[[Any, Any, Any], Awaitable[None]]

_HEADER = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+: [^\x00-\x08\x0a-\x1f\x7f]*\r\n")


async def serve_application(
    app: Application,
    exchange: Exchange,
    server: tuple[str, int] | None,
    state: dict[str, Any],
    *,
    failed: Callable[[Exchange, Exception], None],
) -> None:
    """Answers by `app`, which finds `state` in its scope.

    Its defects are passed to `failed`; the caller gets 500.
    """
    call = _Call(exchange)
    try:
        await app(_scope(exchange, server, state), call.receive, call.send)
    except BaseException as error:
        if isinstance(error, Exception):
            failed(exchange, error)
            call.fail(500, FAULT)
        else:  # the server cancels the remaining requests some time after it has stopped
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
        "state": {**state, CLIENT_CERTIFICATE: exchange.client_certificate},
    }


class _Call:
    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._start: Message = {}
        self._read = False
        self._left: int | None = None  # of a body with a known length

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
        """Returns once the caller has taken what the application has sent, but for the last 64 KB, or is gone."""
        kind = message["type"]
        if self._exchange.gone:
            return
        if kind == "http.response.start" and not self._start:
            self._start = message
        elif kind == "http.response.body" and self._start and not self._exchange.answered:
            self._send_body(message.get("body", b""), more=message.get("more_body", False))
            await self._exchange.taken()
        else:
            raise RuntimeError(f"{kind} has no place here.")

    def fail(self, status: int, reason: str) -> None:
        """End an answer that the application has not completed."""
        if self._exchange.answered:
            return  # the connection serves the next request; frameworks also raise errors that they answered by 500
        if self._exchange.begun:
            self._exchange.cut_off()
        else:
            self._exchange.respond(*error_answer(status, reason))

    def _send_body(self, body: bytes, *, more: bool) -> None:
        exchange = self._exchange
        if not exchange.begun:
            self._begin(len(body), more=more)
        if self._left is not None and not (exchange.head.method == "HEAD" or self._start["status"] in WITHOUT_BODY):
            self._left -= len(body)
            if self._left < 0 or (self._left and not more):
                raise RuntimeError("The body of the answer is not as long as its head says.")
        exchange.send(body)
        if not more:
            exchange.end()

    def _begin(self, size: int, *, more: bool) -> None:
        status = self._start["status"]
        lines = [b"%b: %b\r\n" % pair for pair in self._start.get("headers", ())]
        if not all(map(_HEADER.fullmatch, lines)):
            raise RuntimeError("A header of the answer is not valid.")
        said = [line for line in lines if line[:16].lower() == b"content-length: "]
        if said:
            self._left = int(said[0][16:])
        elif not more and status not in WITHOUT_BODY:
            self._left = size
        others = b"".join(line for line in lines if line not in said)
        self._exchange.begin(status, others, length=self._left)
