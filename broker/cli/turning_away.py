"""What a process answers while it waits for the database at its start: that it is there, and not ready.

Connections would otherwise wait unanswered in the listening socket for as long.
"""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from broker.front.grpc.http2.frames import PREFACE

_REQUEST_SECONDS = 5.0
_REASON = "The database is away; try again."


@asynccontextmanager
async def turning_away(listener: socket.socket) -> AsyncIterator[None]:
    """Answer what comes to the socket within the block; each connection is closed after its answer."""
    server = await asyncio.start_server(_refuse, sock=listener.dup())
    try:
        yield
    finally:
        server.close()


async def _refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        async with asyncio.timeout(_REQUEST_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
            if not PREFACE.startswith(head):  # a client of gRPC takes the end of its connection for UNAVAILABLE
                writer.write(_answer(head.split(b" ", 2)[1:2]))
                writer.write_eof()
                while await reader.read(65536):  # a body that nobody reads would take the answer along
                    pass
    writer.close()


def _answer(path: list[bytes]) -> bytes:
    body: dict[str, object] = {"error": {"code": 503, "message": _REASON, "status": "UNAVAILABLE"}}
    status = "503 Service Unavailable"
    if path == [b"/healthz"]:
        status, body = "200 OK", {"status": "ok"}
    elif path == [b"/readyz"]:
        body = {"status": "unavailable", "reason": _REASON}
    encoded = json.dumps(body).encode()
    head = (
        f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(encoded)}\r\n"
        "retry-after: 1\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + encoded
