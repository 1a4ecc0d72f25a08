"""The port's HTTP/1.1 with an API and an application of the test's own behind it."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from broker.net.http1.connection import Http1Connection, Http1Server
from broker.net.http1.exchange import Exchange, Gone
from broker.net.http1.patience import Pace
from broker.net.http1.web_pages import WebPages
from broker.observability.state_changes import StateChanges
from tests.fixtures.broker import eventually
from tests.fixtures.tls import behind_tls

NEVER = 3600.0
TEXT = b"content-type: text/plain\r\n"

Application = Callable[[Any, Any, Any], Awaitable[None]]


async def no_application(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError(scope)


def without_ids(answers: bytes) -> bytes:
    """Answers without the header that each has and that differs each time."""
    return re.sub(rb"\r\nx-request-id: [0-9a-f]{10}-[0-9a-f]+(?=\r\n)", b"", answers)


@dataclass
class Served:
    """The API answers everything but /app…: with what it was asked, and the length of the body.

    /early answers without the body, /wait after `proceed`, /large with a megabyte, /fault not at all.
    """

    app: Application = no_application
    pace: Pace = field(default_factory=lambda: Pace(check=NEVER, linger=0.05))
    keep_alive: float = 3 * NEVER
    url: str = ""
    proceed: asyncio.Event = field(default_factory=asyncio.Event)
    seen: list[Exchange] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    left: int = 0  # callers that had gone within their request
    connections: list[Http1Connection] = field(default_factory=list)
    pages: WebPages = field(default_factory=lambda: WebPages(states=StateChanges()))
    server: Http1Server = field(init=False)

    def __post_init__(self) -> None:
        self.server = Http1Server(
            self,
            self.app,
            {"key": "value"},
            pages=self.pages,
            connections=set(),
            tasks=set(),
            keep_alive=lambda: self.keep_alive,
        )

    def has(self, path: bytes) -> bool:
        return not path.startswith(b"/app")

    def failed(self, exchange: Exchange, error: Exception) -> None:
        self.faults.append(f"{exchange.head.path.decode()}: {error}")

    async def serve(self, exchange: Exchange) -> None:
        self.seen.append(exchange)
        head = exchange.head
        path, size = unquote(head.path.decode()), 0
        if path == "/fault":
            raise RuntimeError("a defect")
        try:
            more = path != "/early"
            while more:
                piece, more = await exchange.read()
                size += len(piece)
            if path == "/wait":
                await self.proceed.wait()
            if path == "/hang":
                await exchange.hung_up()
        except Gone:
            self.left += 1
        body = f"{head.method} {path} {head.query.decode()} {size}".encode()
        exchange.respond(200, TEXT, b"x" * 1_000_000 if path == "/large" else body)
        await exchange.taken()

    def make_protocol(self) -> Http1Connection:
        connection = type("Paced", (Http1Connection,), {"pace": self.pace})(self.server)
        self.connections.append(connection)
        return connection


@asynccontextmanager
async def serving(app: Application = no_application, *, scheme: str = "http") -> AsyncIterator[Served]:
    served = Served(app)
    make_protocol: Callable[[], asyncio.Protocol] = served.make_protocol
    if scheme == "https":
        make_protocol = behind_tls(make_protocol, served.server.connections)
    server = await asyncio.get_running_loop().create_server(make_protocol, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    served.url = f"{scheme}://{host}:{port}"
    yield served
    server.close()
    await eventually(lambda: not served.server.connections and not served.server.tasks)
