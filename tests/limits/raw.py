"""HTTP/1.1 byte by byte, to break its rules."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.fixtures.broker import PATIENCE_SECONDS
from tests.fixtures.tls import trusting


@dataclass
class Answer:
    status: int
    head: bytes
    body: bytes


@dataclass
class Caller:
    """One connection; it reads nothing by itself."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, *parts: bytes) -> None:
        self.writer.write(b"".join(parts))

    async def send_all(self, *parts: bytes) -> None:
        """Waits until the broker has taken them, or has closed the connection."""
        self.send(*parts)
        async with asyncio.timeout(PATIENCE_SECONDS):
            with suppress(ConnectionError):
                await self.writer.drain()

    async def answer(self) -> Answer:
        """The next answer.  Raises EOFError or ConnectionError if there is none."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head)
            body = await self.reader.readexactly(int(length[1])) if length else b""
        return Answer(int(head.split(b" ", 2)[1]), head, body)

    async def rest(self) -> bytes:
        """What comes until the broker closes the connection."""
        received = b""
        async with asyncio.timeout(PATIENCE_SECONDS):
            with suppress(ConnectionError):
                while part := await self.reader.read(65_536):
                    received += part
        return received

    async def answers(self) -> list[int]:
        """The status codes of all answers until the broker closes the connection."""
        return [int(status) for status in re.findall(rb"^HTTP/1\.1 (\d+) ", await self.rest(), re.MULTILINE)]

    async def is_served(self) -> bool:
        """Whether another request is answered."""
        self.send(request("GET", "/healthz"))
        return (await self.answer()).status == 200


@asynccontextmanager
async def calling(url: str) -> AsyncIterator[Caller]:
    parts = urlsplit(url)
    tls: dict[str, Any] = {"ssl": trusting(), "server_hostname": "localhost"} if parts.scheme == "https" else {}
    caller = Caller(*await asyncio.open_connection(parts.hostname, parts.port, **tls))
    try:
        yield caller
    finally:
        caller.writer.transport.abort()


def request(method: str, path: str, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: x", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body
