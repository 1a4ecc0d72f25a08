"""What HTTP/1.1 (RFC 9110, RFC 9112) asks of a server: raw requests, and the answers to the byte."""

import asyncio
import itertools
import re
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from broker.net.http1.exchange import MOST_UNREAD_BYTES
from broker.net.http1.patience import Pace
from tests.fixtures.broker import eventually
from tests.limits.raw import calling, request
from tests.net.http1 import NEVER, Served, serving, without_ids

HOST = b"Host: x\r\n"
CHUNKED = b"POST /c HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(params=["http", "https"])
async def served(request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    async with serving(scheme=request.param) as served:
        yield served


def ok(said: str, *more: str) -> bytes:
    """The API's answer; `said` is what it was asked."""
    lines = ["HTTP/1.1 200 OK", "content-type: text/plain", f"content-length: {len(said)}", *more, "", said]
    return "\r\n".join(lines).encode()


CLOSE, KEEP = "connection: close", "connection: keep-alive"
LAST = request("GET", "/last", "Connection: close")
LAST_OK = ok("GET /last  0", CLOSE)

# name: what is sent, what comes back until the connection is closed
ANSWERED = {
    "a connection is kept": (request("GET", "/a") + LAST, ok("GET /a  0") + LAST_OK),
    "a client that closes": (request("GET", "/a", "Connection: close"), ok("GET /a  0", CLOSE)),
    "one of several connection options": (request("GET", "/a", "Connection: x, Close"), ok("GET /a  0", CLOSE)),
    "what follows a close is not served": (LAST + request("GET", "/a"), LAST_OK),
    "noise behind a close is not answered": (LAST + b"\x00\x01 noise", LAST_OK),
    "HTTP/1.0 closes": (b"GET /a HTTP/1.0\r\n\r\n", ok("GET /a  0", CLOSE)),
    "HTTP/1.0 that asks is kept": (
        b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /b HTTP/1.0\r\n\r\n",
        ok("GET /a  0", KEEP) + ok("GET /b  0", CLOSE),
    ),
    "pipelined": (
        b"".join(request("GET", f"/{i}") for i in range(5)) + LAST,
        b"".join(ok(f"GET /{i}  0") for i in range(5)) + LAST_OK,
    ),
    "pipelined with bodies": (
        request("POST", "/a", body=b"x" * 3000) + request("POST", "/b", body=b"yy") + LAST,
        ok("POST /a  3000") + ok("POST /b  2") + LAST_OK,
    ),
    "chunks": (CHUNKED + b"2\r\n{}\r\nA\r\n0123456789\r\n0\r\n\r\n" + LAST, ok("POST /c  12") + LAST_OK),
    "extensions and trailers": (
        CHUNKED + b'2;a="b;c"\r\n{}\r\n0\r\nX: y\r\nY: z\r\n\r\n' + LAST,
        ok("POST /c  2") + LAST_OK,
    ),
    "a body of length 0": (request("POST", "/a", "Content-Length: 0") + LAST, ok("POST /a  0") + LAST_OK),
    "a body with GET": (request("GET", "/a", body=b"{}") + LAST, ok("GET /a  2") + LAST_OK),
    "HEAD": (request("HEAD", "/a") + LAST, ok("HEAD /a  0")[: -len("HEAD /a  0")] + LAST_OK),
    "an absolute URL": (request("GET", "http://else/a?b=c") + LAST, ok("GET /a b=c 0") + LAST_OK),
    "an absolute URL without a path": (request("GET", "http://else") + LAST, ok("GET /  0") + LAST_OK),
    "a question about the server": (request("OPTIONS", "*") + LAST, ok("OPTIONS *  0") + LAST_OK),
    "percent-encoding": (request("GET", "/a%2Fb%20c?d=%26") + LAST, ok("GET /a/b c d=%26 0") + LAST_OK),
    "colons and other signs": (
        request("PUT", "/a:b@c!$&'()*+,;=~") + LAST,
        ok("PUT /a:b@c!$&'()*+,;=~  0") + LAST_OK,
    ),
    "an empty query": (request("GET", "/a?") + LAST, ok("GET /a  0") + LAST_OK),
    "names of headers in any case": (
        b"POST /a HTTP/1.1\r\nhOST: x\r\ncontent-LENGTH: 2\r\n\r\n{}" + LAST,
        ok("POST /a  2") + LAST_OK,
    ),
    "spaces around values": (
        b"POST /a HTTP/1.1\r\nHost:x\r\nContent-Length: \t2 \r\n\r\n{}" + LAST,
        ok("POST /a  2") + LAST_OK,
    ),
    "empty lines between requests": (
        b"\r\n" + request("GET", "/a") + b"\r\n\r\n" + LAST,
        ok("GET /a  0") + LAST_OK,
    ),
    "a wish for another protocol": (
        request("POST", "/a", "Connection: Upgrade", "Upgrade: h2c", body=b"{}") + LAST,
        ok("POST /a  2") + LAST_OK,
    ),
    "an early answer": (request("POST", "/early", body=b"x" * 5000) + LAST, ok("POST /early  0") + LAST_OK),
    "the same length twice, the second time as a list": (
        b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 2, 2\r\n\r\n{}",
        None,
    ),
    "a length behind chunks": (CHUNKED[:-2] + b"Content-Length: 4\r\n\r\n0\r\n\r\n" + LAST, None),
    "a length before chunks": (
        b"POST /c HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + LAST,
        None,
    ),
    "a header that goes on": (b"GET /a HTTP/1.1\r\n" + HOST + b"X: a\r\n b\r\n\r\n" + LAST, None),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERED)
@pytest.mark.parametrize("piece", [1_000_000, 1, 7], ids=["at once", "byte by byte", "in sevens"])
async def test_requests_are_answered_to_the_byte_however_they_are_parted(
    served: Served, name: str, piece: int
) -> None:
    sent, expected = ANSWERED[name]
    async with calling(served.url) as caller:
        for at in range(0, len(sent), piece):
            await caller.send_all(sent[at : at + piece])
        answer = await caller.rest()
    if expected is None:
        assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert answer.count(b"HTTP/1.1 ") == 1
        assert served.seen == []
    else:
        assert without_ids(answer) == expected


@pytest.mark.parametrize(
    ("given", "is_taken"),
    [
        ("0af7651916cd43dd8448eb211c80319c", True),
        ("a.b_c:d/e+f=g@h-1", True),
        ("x" * 100, True),
        ("x" * 101, False),
        ('a"b', False),
        ("a b", False),
        ("", False),
    ],
)
async def test_an_answer_has_the_caller_s_request_id_if_it_is_sane(
    served: Served, given: str, is_taken: bool
) -> None:
    async with calling(served.url) as caller:
        caller.send(request("GET", "/a", f"X-Request-Id: {given}") * 2, LAST)
        answers = await caller.rest()
    ids = re.findall(rb"x-request-id: (.*)\r\n", answers)
    assert len(ids) == 3
    assert (ids[:2] == [given.encode()] * 2) is is_taken
    assert len(set(ids)) == (2 if is_taken else 3)


async def test_a_request_that_is_refused_before_it_has_a_meaning_has_an_id_too(served: Served) -> None:
    async with calling(served.url) as caller:
        caller.send(b"GET /a b c HTTP/1.1\r\n\r\n")
        answer = await caller.rest()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert re.search(rb"\r\nx-request-id: [0-9a-f]{10}-[0-9a-f]+\r\n", answer)


async def test_a_head_that_was_seen_before_is_answered_as_the_first_time(served: Served) -> None:
    async with calling(served.url) as caller:
        for path, body in itertools.product(["/a?q=1", "/b"], [b"", b"{}", b"x" * 100_000]):
            for _ in range(3):
                caller.send(request("POST", path, body=body))
                said = f"POST {path.partition('?')[0]} {path.partition('?')[2]} {len(body)}".encode()
                assert (await caller.answer()).body == said


async def test_a_head_that_is_known_does_not_hide_what_comes_with_it(served: Served) -> None:
    """The same bytes, but part of the body, or more than the body, comes with them."""
    post = request("POST", "/a", body=b"{}")
    async with calling(served.url) as caller:
        for _ in range(2):
            caller.send(post)
            assert (await caller.answer()).body == b"POST /a  2"
        caller.send(post[:-1])
        await eventually(lambda: served.connections[-1].received == 5)
        caller.send(b"}" + post + request("GET", "/b"))
        assert [(await caller.answer()).body for _ in range(3)] == [b"POST /a  2", b"POST /a  2", b"GET /b  0"]
        caller.send(post + b"\r\n" + post)
        assert [(await caller.answer()).body for _ in range(2)] == [b"POST /a  2"] * 2
        caller.send(LAST, post, post)
        assert without_ids(await caller.rest()) == LAST_OK


async def test_a_refusal_is_one_answer_and_names_what_is_wrong(served: Served) -> None:
    async with calling(served.url) as caller:
        caller.send(request("GET", "/a") + b"GET /b HTTP/1.1\r\n\r\n" + request("GET", "/c"))
        assert (await caller.answer()).body == b"GET /a  0"
        refusal = await caller.answer()
        assert (refusal.status, b"connection: close" in refusal.head) == (400, True)
        assert b"has one Host header" in refusal.body
        assert await caller.rest() == b""


async def test_a_client_that_waits_to_be_asked_is_asked_when_its_body_is_wanted(served: Served) -> None:
    async with calling(served.url) as caller:
        caller.send(request("POST", "/a", "Expect: 100-Continue", "Content-Length: 2"))
        asked = await caller.answer()
        assert asked.head == b"HTTP/1.1 100 Continue\r\n\r\n"
        caller.send(b"{}", LAST)
        assert without_ids(await caller.rest()) == ok("POST /a  2") + LAST_OK


async def test_a_client_that_waits_to_be_asked_and_is_not_finds_the_connection_closed(served: Served) -> None:
    """Whether it sends the body all the same cannot be known: the next request could be taken for it."""
    async with calling(served.url) as caller:
        caller.send(request("POST", "/early", "Expect: 100-continue", "Content-Length: 50"))
        assert without_ids(await caller.rest()) == ok("POST /early  0", CLOSE)
        caller.send(request("DELETE", "/a"))
    assert len(served.seen) == 1


async def test_a_body_that_was_sent_without_being_asked_for_is_not_asked_for(served: Served) -> None:
    async with calling(served.url) as caller:
        caller.send(request("POST", "/a", "Expect: 100-continue", "Connection: close", body=b"{}"))
        assert without_ids(await caller.rest()) == ok("POST /a  2", CLOSE)


async def test_no_more_of_a_body_is_read_than_the_api_asks_for(served: Served) -> None:
    async with calling(served.url) as caller:
        caller.send(request("GET", "/wait"), request("POST", "/a", body=b"x" * 20_000_000))
        await eventually(lambda: served.connections and len(served.seen) == 1)
        await asyncio.sleep(0.1)
        assert served.connections[-1].received <= MOST_UNREAD_BYTES + 300_000  # what one read of the socket brings
        served.proceed.set()
        assert (await caller.answer()).body == b"GET /wait  0"
        assert (await caller.answer()).body == b"POST /a  20000000"


async def test_a_request_waits_for_the_answer_before_it_to_be_taken(served: Served) -> None:
    """Else a client that reads nothing could make us hold an answer for each request that fits into a packet."""
    async with calling(served.url) as caller:
        # Newer kernels let it grow to 32 MB.
        caller.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 100_000)
        caller.writer.transport.pause_reading()  # type: ignore[attr-defined]
        caller.send(request("GET", "/large") * 40)
        await eventually(lambda: len(served.seen) > 1)
        await asyncio.sleep(0.2)
        assert len(served.seen) < 30  # the sockets hold some megabytes
        caller.writer.transport.resume_reading()  # type: ignore[attr-defined]
        for _ in range(40):
            assert len((await caller.answer()).body) == 1_000_000


@pytest.mark.parametrize("path", ["/a", "/hang"])
async def test_a_caller_that_leaves_is_noticed_within_its_body_and_while_it_waits(
    served: Served, path: str
) -> None:
    async with calling(served.url) as caller:
        caller.send(request("POST", path, "Content-Length: 5"), b"x" if path == "/a" else b"12345")
        await eventually(lambda: served.seen)
    await eventually(lambda: served.seen[0].gone)
    await eventually(lambda: not served.server.tasks)
    assert served.left == (path == "/a")


@pytest.mark.parametrize("behind", [1, 100], ids=["which are parsed", "most of which are not read"])
async def test_a_caller_that_leaves_is_noticed_behind_requests_that_wait(served: Served, behind: int) -> None:
    """What is not read is looked at every few seconds; here by hand."""
    async with calling(served.url) as caller:
        caller.send(request("GET", "/hang"), request("GET", "/a") * behind)
        await eventually(lambda: served.seen)
        [connection] = served.connections
        connection.check()
        assert not served.seen[0].gone
    await eventually(lambda: connection.check() or served.seen[0].gone)
    await eventually(lambda: not served.server.tasks)
    assert len(served.seen) == 1


async def test_a_connection_that_is_shut_down_answers_what_is_here_and_closes(served: Served) -> None:
    async with calling(served.url) as caller, calling(served.url) as idle, calling(served.url) as begun:
        caller.send(request("GET", "/wait"), request("GET", "/b"))
        begun.send(b"GET /c HTT")
        await eventually(lambda: served.seen and len(served.connections) == 3)
        for connection in list(served.server.connections):
            connection.shutdown()
        assert await idle.rest() == b""
        assert await begun.rest() == b""
        served.proceed.set()
        assert without_ids(await caller.rest()) == ok("GET /wait  0") + ok("GET /b  0", CLOSE)


class _Cancelled(set[asyncio.Task[Any]]):
    def add(self, task: asyncio.Task[Any]) -> None:
        task.cancel()
        super().add(task)


async def test_a_call_that_is_cancelled_before_it_began_is_told_to_try_again(served: Served) -> None:
    served.server.tasks = _Cancelled()
    async with calling(served.url) as caller:
        caller.send(request("GET", "/a"))
        refusal = await caller.answer()
    assert (refusal.status, served.seen) == (503, [])
    assert b"The broker stops; try again." in refusal.body


async def test_a_defect_of_the_api_is_told_and_answered(served: Served) -> None:
    async with calling(served.url) as caller:
        caller.send(request("GET", "/fault"))
        assert (await caller.answer()).status == 500
    assert served.faults == ["/fault: a defect"]


async def _has_come(served: Served, requests: int) -> None:
    await eventually(lambda: len(served.seen) == requests)


@pytest.mark.parametrize("end", ["idle", "asked for by the client", "shut down"])
async def test_a_client_that_takes_no_answers_does_not_keep_its_connection_for_ever(
    served: Served, end: str
) -> None:
    """What it leaves may be so little that the transport still has room for more."""
    served.pace, served.keep_alive = Pace(check=0.05 if end == "idle" else NEVER, answer=0.2), 0.2
    async with calling(served.url) as caller:
        caller.writer.transport.pause_reading()  # type: ignore[attr-defined]
        many = request("GET", "/" + "a" * 900) * 8
        await eventually(lambda: served.connections)
        [connection] = served.connections
        for transport, buffer in (
            (connection._transport, socket.SO_SNDBUF),
            (caller.writer.transport, socket.SO_RCVBUF),
        ):
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, buffer, 4096)
        while not connection._transport.get_write_buffer_size():
            caller.send(many)
            await _has_come(served, len(served.seen) + 8)
        if end == "shut down":
            connection.shutdown()
        elif end != "idle":
            caller.send(LAST)
        await eventually(lambda: not served.server.connections)
