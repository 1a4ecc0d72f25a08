"""What a socket answers that cannot be served from just now: that somebody is there, and not ready.

Connections would otherwise wait unanswered in the listening socket for as long: in a worker that waits for the
database at its start, and in the parent while it has no worker that serves.
"""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from broker.port.http2.frames import PREFACE

_REQUEST_SECONDS = 5.0
_BACKLOG = 2048  # as the server's own: the socket is the same


@asynccontextmanager
async def turning_away(
    listener: socket.socket, reason: str, *, alive: bool, tls: ssl.SSLContext | None = None
) -> AsyncIterator[None]:
    """Answer what comes to the socket within the block; each connection is closed after its answer.

    `alive`: what /healthz says.  `tls`: what the socket speaks it with.
    """

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                if not PREFACE.startswith(head):  # a client of gRPC takes the end of its connection for UNAVAILABLE
                    writer.write(_answer(head.split(b" ", 2)[1:2], reason, alive=alive))
                    if writer.can_write_eof():  # asyncio's TLS cannot
                        writer.write_eof()
                    while await reader.read(65536):  # a body that nobody reads would take the answer along
                        pass
        writer.close()

    server = await asyncio.start_server(
        refuse,
        sock=listener.dup(),
        backlog=_BACKLOG,
        ssl=tls,
        ssl_handshake_timeout=None if tls is None else _REQUEST_SECONDS,
    )
    try:
        yield
    finally:
        server.close()


def _answer(path: list[bytes], reason: str, *, alive: bool) -> bytes:
    body: dict[str, object] = {"error": {"code": 503, "message": reason, "status": "UNAVAILABLE"}}
    status = "503 Service Unavailable"
    if path == [b"/healthz"] and alive:
        status, body = "200 OK", {"status": "ok"}
    elif path in ([b"/healthz"], [b"/readyz"]):
        body = {"status": "unavailable", "reason": reason}
    encoded = json.dumps(body).encode()
    head = (
        f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(encoded)}\r\n"
        "retry-after: 1\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + encoded
