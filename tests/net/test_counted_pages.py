"""Large pages beside the API count in the budget of answers for as long as their readers have not taken them."""

import asyncio
import socket
from typing import Any
from urllib.parse import urlsplit

from broker.api.limits.answer_memory import AnswerMemory
from broker.api.pages.counted_pages import CountedPages
from broker.app.guard import make_address_turns
from broker.fairness.loop_turns import LoopTurns
from tests.fixtures.broker import eventually
from tests.net.http1 import Served, serving

SIZE = 8_000_000  # more than sockets take by themselves


async def _pages(scope: Any, receive: Any, send: Any) -> None:
    """/app-small, and others that are large."""
    size = 10 if scope["path"] == "/app-small" else SIZE
    headers = [(b"content-length", b"%d" % size)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"x" * size})


def _connected(served: Served, path: str) -> socket.socket:
    """A connection that has asked for a page."""
    url = urlsplit(served.url)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    connection.settimeout(60)
    connection.connect((url.hostname, url.port))
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    return connection


async def _status(connection: socket.socket) -> bytes:
    return await asyncio.to_thread(connection.recv, len(b"HTTP/1.1 200"))


def _read(connection: socket.socket) -> int:
    """How much there is to the end."""
    size = 0
    while data := connection.recv(1_000_000):
        size += len(data)
    return size


async def test_a_page_counts_until_it_is_taken_and_no_more_of_its_path_are_sent_meanwhile() -> None:
    answers = AnswerMemory(SIZE + 1)
    async with serving(CountedPages(_pages, answers, make_address_turns(LoopTurns()))) as served:
        with await asyncio.to_thread(_connected, served, "/app-large") as unread:
            assert await _status(unread) == b"HTTP/1.1 200"
            assert answers.held == SIZE
            for path, status in (
                ("/app-large", b"HTTP/1.1 503"),
                ("/app-small", b"HTTP/1.1 200"),
                ("/app-other", b"HTTP/1.1 200"),
            ):
                with await asyncio.to_thread(_connected, served, path) as another:
                    assert await _status(another) == status, path
            await eventually(lambda: answers.held == SIZE)  # whoever has gone holds nothing
            assert await asyncio.to_thread(_read, unread) > SIZE
            await eventually(lambda: answers.held == 0)
        with await asyncio.to_thread(_connected, served, "/app-large") as again:
            assert await _status(again) == b"HTTP/1.1 200"
            assert await asyncio.to_thread(_read, again) > SIZE
    assert answers.held == 0
    assert served.faults == []
