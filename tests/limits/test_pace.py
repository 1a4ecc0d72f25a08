"""A peer that is too slow is cut off: what it holds of the process is given back.

The looks that a connection takes at its peer every few seconds are taken by hand here: no test waits for a time.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from broker.net.first_bytes import CROWDED_SECONDS, FirstBytes, MakeProtocol
from broker.net.http1.connection import Http1Connection, Http1Server
from broker.net.http1.exchange import Exchange
from broker.net.http1.patience import Pace
from broker.net.http1.web_pages import WebPages
from broker.net.http2.frames import PREFACE
from broker.net.limits.open_connections import OpenConnections, address_in
from broker.observability.state_changes import StateChanges
from tests.fixtures.broker import eventually
from tests.limits.raw import Caller, calling, request

NEVER = 3600.0


@dataclass
class Served:
    """An application without a broker behind the broker's protocol."""

    pace: Pace
    check_seconds: float  # before the first bytes
    keep_alive: float
    url: str = ""
    proceed: asyncio.Event = field(default_factory=asyncio.Event)
    connections: list[Http1Connection] = field(default_factory=list)
    open: OpenConnections = field(default_factory=lambda: OpenConnections(set(), 3, StateChanges()))
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """/wait answers after `proceed`, /unread reads after it, /early reads nothing, /large answers much."""
        size = 0
        if scope["path"] == "/unread":
            await self.proceed.wait()
        while scope["path"] != "/early":
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            size += len(message["body"])
            if not message["more_body"]:
                break
        if scope["path"] == "/wait":
            await self.proceed.wait()
        body = b"x" * 1_000_000 if scope["path"] == "/large" else b"%d" % size
        head: Any = {"status": 200, "headers": [(b"content-length", b"%d" % len(body))]}
        await send({"type": "http.response.start", **head})
        await send({"type": "http.response.body", "body": body})

    def has(self, path: bytes) -> bool:
        return False

    async def serve(self, exchange: Exchange) -> None:
        raise AssertionError

    def failed(self, exchange: Exchange, error: Exception) -> None:
        raise error

    def make_protocol(self) -> FirstBytes:
        server = Http1Server(
            self,
            self.app,
            {},
            pages=WebPages(states=StateChanges()),
            connections=self.open,
            tasks=self.tasks,
            keep_alive=lambda: self.keep_alive,
        )
        return FirstBytes(
            self.open,
            lambda: self._http1(server),
            asyncio.Protocol,
            keep_alive=lambda: self.keep_alive,
            check_seconds=self.check_seconds,
        )

    def _http1(self, server: Http1Server) -> Http1Connection:
        connection = type("Paced", (Http1Connection,), {"pace": self.pace})(server)
        self.connections.append(connection)
        return connection

    def check(self, times: int = 1) -> None:
        for _ in range(times):
            self.connections[-1].check()

    async def heard(self, size: int) -> None:
        """Until so many bytes of bodies have come."""
        await eventually(lambda: self.connections and self.connections[-1].received == size)


class Closable(asyncio.Transport):
    """A transport that is only closed."""

    closed = False

    def close(self) -> None:
        self.closed = True


@dataclass(eq=False)
class OfAddress:
    """An open connection."""

    address: str


@asynccontextmanager
async def serving(
    *, check_seconds: float = NEVER, keep_alive: float = 3 * NEVER, **pace: Any
) -> AsyncIterator[Served]:
    served = Served(Pace(**{"check": NEVER, "body_bytes": 100, "linger": 0.05} | pace), check_seconds, keep_alive)
    server = await asyncio.get_running_loop().create_server(served.make_protocol, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    served.url = f"http://{host}:{port}"
    yield served
    server.close()
    await eventually(lambda: not served.open)


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with serving() as served:
        yield served


@pytest.mark.parametrize(("first", "keep_alive"), [(b"", 0.1), (b"P", NEVER), (PREFACE[:-1], NEVER)])
async def test_a_connection_that_says_nothing_for_long_or_nothing_clear_is_closed(
    first: bytes, keep_alive: float
) -> None:
    async with serving(check_seconds=0.05, keep_alive=keep_alive) as served, calling(served.url) as caller:
        caller.send(first)
        assert await caller.rest() == b""


async def test_a_connection_without_a_request_is_kept_as_long_as_an_idle_one() -> None:
    """A client may connect ahead of its first request, as pools of connections do."""
    protocol = FirstBytes(
        OpenConnections(set(), 3, StateChanges()),
        asyncio.Protocol,
        asyncio.Protocol,
        keep_alive=lambda: 620.0,
    )
    transport = Closable()
    protocol.connection_made(transport)
    try:
        for _ in range(20):
            protocol._check()
        assert not transport.closed
        protocol._check()  # after 630 s
        assert transport.closed
    finally:
        protocol.connection_lost(None)


async def test_idle_connections_are_closed_sooner_while_many_are_open() -> None:
    make = MakeProtocol(most_connections=10, keep_alive_seconds=620.0)
    connections = OpenConnections(set(), 10, StateChanges())
    for count, seconds in ((5, 620.0), (6, CROWDED_SECONDS), (10, CROWDED_SECONDS)):
        while len(connections) < count:
            connections.add(OfAddress("192.0.2.1"))
        assert make._keep_alive(connections) == seconds
    assert MakeProtocol(most_connections=10, keep_alive_seconds=10.0)._keep_alive(connections) == 10.0


def test_an_address_with_many_connections_leaves_capacity_to_the_others() -> None:
    connections = OpenConnections(set(), 100, StateChanges())
    opened = []
    while connections.has_capacity("192.0.2.1"):
        opened.append(OfAddress("192.0.2.1"))
        connections.add(opened[-1])
    assert len(connections) == 80
    assert connections.has_capacity("192.0.2.2")
    connections.discard(opened[0])
    assert connections.has_capacity("192.0.2.1")


@pytest.mark.parametrize(
    ("host", "counted"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_an_ipv6_address_counts_with_its_network(host: str, counted: str) -> None:
    assert address_in((host, 1234)) == counted


async def test_a_connection_that_has_spoken_in_time_is_kept(served: Served) -> None:
    async with serving(check_seconds=1.0) as served, calling(served.url) as caller:
        caller.send(request("GET", "/wait"))
        await asyncio.sleep(1.2)
        served.proceed.set()
        assert (await caller.answer()).status == 200


async def test_connections_past_their_number_are_closed_and_find_capacity_again(served: Served) -> None:
    async with calling(served.url) as first:
        async with calling(served.url), calling(served.url):
            await eventually(lambda: len(served.open) == 3)
            async with calling(served.url) as fourth:
                assert await fourth.rest() == b""
            first.send(request("GET", "/"))
            assert (await first.answer()).status == 200
        await eventually(lambda: len(served.open) == 1)
        async with calling(served.url) as another:
            assert await another.is_served()


@pytest.mark.parametrize("part", [b"G", b"GET /wa", b"GET / HTTP/1.1\r\nHos", b"GET / HTTP/1.1\r\nHost: x\r\n"])
async def test_a_head_that_does_not_come_to_its_end_is_refused(served: Served, part: bytes) -> None:
    async with calling(served.url) as caller:
        caller.send(part)
        await eventually(lambda: served.connections)
        served.check()
        served.check()
        refusal = await caller.answer()
        assert refusal.status == 408
        assert b"head of the request took longer" in refusal.body
        assert await caller.rest() == b""


async def test_a_head_that_comes_byte_by_byte_is_refused() -> None:
    async with serving(check=0.1) as served, calling(served.url) as caller:
        sending = asyncio.create_task(_trickle(caller, b"GET / HTTP/1.1\r\nHost: x\r\nX: "))
        assert await caller.answers() in ([408], [])
        sending.cancel()


async def _trickle(caller: Caller, beginning: bytes) -> None:
    caller.send(beginning)
    while True:
        await caller.send_all(b"a")
        await asyncio.sleep(0.001)


async def test_each_request_has_the_time_anew(served: Served) -> None:
    async with calling(served.url) as caller:
        for _ in range(5):
            caller.send(request("GET", "/")[:-5])
            await eventually(lambda: served.connections)
            await asyncio.sleep(0.01)
            served.check()
            caller.send(request("GET", "/")[-5:])
            assert (await caller.answer()).status == 200


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_that_comes_too_slowly_is_refused(served: Served, chunked: bool) -> None:
    async with calling(served.url) as caller:
        length = "Transfer-Encoding: chunked" if chunked else "Content-Length: 1000"
        caller.send(request("POST", "/", length), b"63\r\n" if chunked else b"", b"x" * 99)
        await served.heard(99)
        served.check()
        caller.send(b"\r\n63\r\n" if chunked else b"", b"x" * 99)
        await served.heard(198)
        served.check()
        refusal = await caller.answer()
        assert refusal.status == 408
        assert b"body of the request came slower" in refusal.body
        assert await caller.rest() == b""


async def test_a_body_that_comes_steadily_may_take_its_time(served: Served) -> None:
    async with calling(served.url) as caller:
        caller.send(request("POST", "/", "Content-Length: 2000"))
        for size in range(100, 2001, 100):
            caller.send(b"x" * 100)
            await served.heard(size)
            served.check()
        assert (await caller.answer()).body == b"2000"


async def test_a_body_that_the_broker_does_not_read_is_not_slow(served: Served) -> None:
    async with calling(served.url) as caller:
        caller.send(request("POST", "/unread", body=b"x" * 1_000_000))
        await eventually(lambda: served.connections and served.connections[-1].received > 65_536)
        served.check(20)
        served.proceed.set()
        assert (await caller.answer()).body == b"1000000"


async def test_the_rest_of_a_body_whose_request_was_answered_may_not_take_for_ever(served: Served) -> None:
    async with calling(served.url) as caller:
        caller.send(request("POST", "/early", "Content-Length: 1000"), b"x" * 10)
        assert (await caller.answer()).status == 200
        served.check(2)
        assert await caller.rest() == b""


async def test_no_more_is_read_of_a_body_whose_request_was_answered_than_any_body_may_have(served: Served) -> None:
    async with calling(served.url) as caller:
        caller.send(request("POST", "/early", "Content-Length: 10000000000"))
        sending = asyncio.create_task(_flood(caller))
        assert await caller.answers() in ([200], [])
        sending.cancel()
        assert served.connections[-1].received < 30_000_000


async def _flood(caller: Caller) -> None:
    while True:
        await caller.send_all(b"x" * 100_000)
        await asyncio.sleep(0)


async def test_a_connection_is_closed_once_it_was_idle_for_long(served: Served) -> None:
    async with calling(served.url) as caller:
        assert await caller.is_served()
        served.check(3)
        assert await caller.is_served()
        served.check(4)
        assert await caller.rest() == b""


async def test_a_request_may_wait_for_its_answer_as_long_as_that_takes(served: Served) -> None:
    async with calling(served.url) as caller:
        caller.send(request("GET", "/wait"))
        await eventually(lambda: served.tasks)
        served.check(20)
        served.proceed.set()
        assert (await caller.answer()).status == 200


async def test_half_a_request_behind_one_that_waits_is_refused_after_its_answer(served: Served) -> None:
    async with calling(served.url) as caller:
        caller.send(request("GET", "/wait"), b"GET /wa")
        await eventually(lambda: served.tasks)
        served.check(20)
        served.proceed.set()
        assert (await caller.answer()).status == 200
        served.check(2)
        assert await caller.answers() == [408]


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"Content-Length: 50\r\n\r\nabc", 408), (b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400)],
)
async def test_what_came_before_a_body_that_is_refused_is_answered_before_it(
    served: Served, body: bytes, status: int
) -> None:
    async with calling(served.url) as caller:
        post = b"POST / HTTP/1.1\r\nHost: x\r\n" + body
        caller.send(request("GET", "/wait"), request("GET", "/wait"), post)
        await eventually(lambda: served.connections and served.connections[-1].received in (0, 3))
        await eventually(lambda: served.tasks)
        served.check(6)
        served.proceed.set()
        assert [(await caller.answer()).status for _ in range(2)] == [200, 200]
        served.check(2)
        assert await caller.answers() == [status]


async def test_a_reader_that_does_not_take_its_answers_is_cut_off() -> None:
    async with serving(answer=0.05) as served, calling(served.url) as caller:
        caller.writer.transport.pause_reading()  # type: ignore[attr-defined]
        caller.send(request("GET", "/large") * 20)
        await eventually(lambda: served.connections)
        await eventually(lambda: not served.open)
        caller.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert len(await caller.rest()) < 20_000_000
