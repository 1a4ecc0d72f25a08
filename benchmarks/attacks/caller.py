"""Calls of an attack: over connections of its own, with little work for each."""

import asyncio
import json
import re
from collections.abc import Mapping
from contextlib import suppress

from benchmarks.wire import build_request

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


def build_call(method: str, path: str, body: Mapping[str, object] | None = None) -> bytes:
    """`path` is that behind /v1/."""
    return build_request(method, f"/v1/{path}", json.dumps(body or {}).encode())


class Caller:
    """One kept-alive connection, for one task."""

    def __init__(self, host: str, port: int) -> None:
        self._where = host, port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, method: str, path: str, body: Mapping[str, object] | None = None) -> bytes:
        """The body of the answer, whatever its status; empty if the server hung up.  `path` is that behind /v1/."""
        return await self.send(build_call(method, path, body))

    async def send(self, request: bytes) -> bytes:
        """As `call`, of what build_call has made."""
        with suppress(OSError, asyncio.IncompleteReadError):
            if self._streams is None:
                self._streams = await asyncio.open_connection(*self._where, limit=2**24)
            reader, writer = self._streams
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(head)
            return await reader.readexactly(int(length[1])) if length else b""
        self._streams = None
        return b""
