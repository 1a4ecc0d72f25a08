"""The response of a socket whose broker cannot serve yet: the broker is running, but not ready.

Otherwise connections would wait unanswered in the listening socket: in a worker that waits for the database at its
start, and in the parent while no worker serves.
"""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from broker.net.http2.frames import PREFACE
from broker.net.listener import listen

_REQUEST_SECONDS = 5.0
_PAUSE_SECONDS = 1.0  # if no connection can be accepted

_Refuse = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def turning_away(
    listener: socket.socket, reason: str, *, alive: bool, tls: ssl.SSLContext | None = None
) -> AsyncIterator[None]:
    """Answer what comes to the socket within the block; each connection is closed after its answer.

    `alive`: what /healthz says.  `tls`: what the socket speaks it with.  Raises CannotListen.
    """

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                if not PREFACE.startswith(head):  # gRPC clients treat the end of the connection as UNAVAILABLE
                    writer.write(_answer(head.split(b" ", 2)[1:2], reason, alive=alive))
                    if writer.can_write_eof():  # asyncio's TLS cannot
                        writer.write_eof()
                    while await reader.read(65536):  # unread data would reset the connection and discard the answer
                        pass
        writer.close()

    listen(listener)
    with listener.dup() as own, _accepting(own, lambda connection: _talk(connection, refuse, tls)):
        yield


@contextmanager
def _accepting(
    listener: socket.socket, talk: Callable[[socket.socket], Coroutine[None, None, None]]
) -> Iterator[None]:
    """Accept within the block.  What was accepted by its end is answered all the same.

    A server of asyncio's, closed between the two steps in which it accepts, forgets a connection without closing
    it: its caller would wait until the garbage collector comes along.
    """
    loop = asyncio.get_running_loop()
    answers: set[asyncio.Task[None]] = set()
    pause: asyncio.TimerHandle | None = None

    def accept() -> None:
        nonlocal pause
        try:
            connection, _ = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):  # another process was faster
            return
        except OSError:  # out of file descriptors
            loop.remove_reader(listener)
            pause = loop.call_later(_PAUSE_SECONDS, loop.add_reader, listener, accept)
            return
        answer = loop.create_task(talk(connection))
        answers.add(answer)
        answer.add_done_callback(answers.discard)

    listener.setblocking(False)
    loop.add_reader(listener, accept)
    try:
        yield
    finally:
        if pause is not None:
            pause.cancel()
        loop.remove_reader(listener)


async def _talk(connection: socket.socket, refuse: _Refuse, tls: ssl.SSLContext | None) -> None:
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    connection.setblocking(False)
    timeout = None if tls is None else _REQUEST_SECONDS
    try:
        transport, protocol = await loop.connect_accepted_socket(
            lambda: asyncio.StreamReaderProtocol(reader), connection, ssl=tls, ssl_handshake_timeout=timeout
        )
    except OSError:  # not TLS, or too slow
        connection.close()
        return
    await refuse(reader, asyncio.StreamWriter(transport, protocol, reader, loop))


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
