"""Detects HTTP/1.1 or HTTP/2 on one port, by the first bytes of a connection or by the protocol agreed in TLS.

Clients of HTTP/2 in cleartext start with its preface ("prior knowledge"; there is no upgrade).  A connection that
starts in any other way is HTTP/1.1.  Then the connection belongs to the detected protocol, and neither costs the
other anything.  gRPC needs HTTP/2; REST and the pages beside the API work over both.  Over HTTP/2 the head of each
request shows whether it is gRPC.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, cast

from broker.net.http1.asgi import Application
from broker.net.http1.connection import Http1Connection, Http1Server
from broker.net.http1.responses import closing_answer
from broker.net.http1.web_pages import WebPages
from broker.net.http2.connection import Http2Connection, Registry
from broker.net.http2.exchange import Http2Requests
from broker.net.http2.frames import PREFACE
from broker.net.limits.open_connections import OpenConnections, address_in
from broker.net.tls.handshake import HandshakeTurns, TlsHandshake
from broker.net.tls.material import ServerTls

CHECK_SECONDS = 30.0  # between two checks of a connection without a request; for the first bytes to be complete
KEEP_ALIVE_SECONDS = 620.0  # longer than load balancers keep a connection, so that they close it
CROWDED_SECONDS = 75.0  # for an idle connection while more than half of the allowed ones are open
# Keys in the state of the ASGI lifespan:
HTTP1_API = "http1_api"  # an Http1Api: what answers the hot calls of REST
HTTP2_API = "http2_api"  # an Http2Api: it serves gRPC
WEB_PAGES = "web_pages"  # the WebPages that decide which pages may call
STATES = "states"  # the StateChanges to which refused connections are reported
STOP_WAITING = "stop_waiting"  # called before the server stops, so that waiting calls are answered
METRICS = "metrics"  # an application for a separate port without authentication

CLEARTEXT_ANSWER = closing_answer(400, "This port speaks TLS: use https:// (for gRPC a secure channel).")


class Http2Api(Protocol):
    """Serves gRPC over HTTP/2."""

    def connection(
        self,
        connections: Registry,
        tasks: set[asyncio.Task[Any]],
        others: Callable[[Http2Connection], Http2Requests],
    ) -> asyncio.Protocol:
        """The protocol of a new connection; it keeps itself and its tasks in the sets for as long as they last.

        `others` accept the requests that are not gRPC.
        """


class FirstBytes(asyncio.Protocol):
    """A connection that has not said yet what it speaks.

    One that says nothing is idle, and closed as such; one that says too little at once is closed at the next check.
    """

    def __init__(
        self,
        connections: OpenConnections,
        make_http1: Callable[[], asyncio.Protocol],
        make_http2: Callable[[], asyncio.Protocol],
        *,
        keep_alive: Callable[[], float],
        agreed: str | None = None,
        check_seconds: float = CHECK_SECONDS,
    ) -> None:
        """Adds itself to `connections`, which the server shuts down when it stops, until the protocol is known.

        `keep_alive()`: for how many seconds an idle connection is kept.  `agreed`: the protocol that TLS has agreed
        on, "h2" or "http/1.1" (None: none); no other is accepted then.
        """
        self._connections = connections
        self._keep_alive, self._check_seconds = keep_alive, check_seconds
        self._checks = 0
        self._timer: asyncio.TimerHandle | None = None
        self._make_http1 = make_http1
        self._make_http2 = make_http2
        self._agreed = agreed
        self._heard = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.address = address_in(transport.get_extra_info("peername"))
        if not self._connections.has_capacity(self.address):
            self._transport.abort()
            return
        self._connections.add(self)
        self._check_later()

    def _check_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._check_seconds, self._check)

    def _check(self) -> None:
        self._checks += 1
        if self._heard or self._checks * self._check_seconds >= self._keep_alive():
            self._transport.close()
        else:
            self._check_later()

    def data_received(self, data: bytes) -> None:
        if self._heard:
            data = self._heard + data
        if self._agreed == "http/1.1":
            self._hand_over(self._make_http1(), data)
        elif data.startswith(PREFACE):
            self._hand_over(self._make_http2(), data)
        elif PREFACE.startswith(data):
            self._heard = data
        elif self._agreed == "h2":
            self._transport.abort()
        else:
            self._hand_over(self._make_http1(), data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()

    def shutdown(self) -> None:
        self._transport.close()

    def _leave(self) -> None:
        self._connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def _hand_over(self, protocol: asyncio.Protocol, data: bytes) -> None:
        self._leave()
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        protocol.data_received(data)


class MakeProtocol:
    """Makes the protocol of each new connection.

    With `tls` connections begin with a handshake, except those of a `cleartext` call.
    """

    def __init__(
        self, *, most_connections: int, tls: ServerTls | None = None, keep_alive_seconds: float = KEEP_ALIVE_SECONDS
    ) -> None:
        self._most = most_connections
        self._keep_alive_seconds = keep_alive_seconds
        self._tls = tls
        self._turns = HandshakeTurns()
        self._connections: OpenConnections | None = None
        self._http1: Http1Server | None = None

    def __call__(
        self,
        *,
        app: Application,
        state: dict[str, Any],
        connections: set[Any],
        tasks: set[asyncio.Task[Any]],
        cleartext: bool = False,
    ) -> asyncio.Protocol:
        """Returns the protocol of a new connection.

        `app` serves what surrounds the API; `state` is what its lifespan gave, with the keys above.  Open
        connections and running calls are kept in the two sets, which are the same ones in each call.
        """
        opened = self._open(connections, state)
        http2: Http2Api = state[HTTP2_API]
        server = self._server(app, state, opened, tasks)

        def first_bytes(agreed: str | None = None) -> FirstBytes:
            return FirstBytes(
                opened,
                lambda: Http1Connection(server),
                lambda: http2.connection(opened, tasks, partial(Http2Requests, server)),
                keep_alive=lambda: self._keep_alive(opened),
                agreed=agreed,
            )

        if self._tls is None or cleartext:
            return first_bytes()
        return TlsHandshake(self._tls.context, self._turns, opened, first_bytes, cleartext_answer=CLEARTEXT_ANSWER)

    def http1(
        self, *, app: Application, state: dict[str, Any], connections: set[Any], tasks: set[asyncio.Task[Any]]
    ) -> Http1Connection:
        """Returns the protocol of a connection that is known to speak HTTP/1.1."""
        return Http1Connection(self._server(app, state, self._open(connections, state), tasks))

    def _server(
        self, app: Application, state: dict[str, Any], connections: OpenConnections, tasks: set[asyncio.Task[Any]]
    ) -> Http1Server:
        if self._http1 is None:
            self._http1 = Http1Server(
                state[HTTP1_API],
                app,
                state,
                pages=cast(WebPages, state[WEB_PAGES]),
                connections=connections,
                tasks=tasks,
                keep_alive=lambda: self._keep_alive(connections),
            )
        return self._http1

    def _open(self, connections: set[Any], state: dict[str, Any]) -> OpenConnections:
        if self._connections is None:
            self._connections = OpenConnections(connections, self._most, state[STATES])
        return self._connections

    def _keep_alive(self, connections: OpenConnections) -> float:
        return (
            min(self._keep_alive_seconds, CROWDED_SECONDS) if connections.are_crowded else self._keep_alive_seconds
        )
