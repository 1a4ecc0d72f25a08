"""Calls of the REST API from within the process, on behalf of the viewer of a page.

A call passes everything that a request over the network passes: authentication, permissions, limits, turns and the
audit log.  So a page can show nothing that its viewer could not get with `curl`.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from starlette.requests import Request

from broker.access.principals.caller import Caller
from broker.api.rest.app import RestApi
from broker.model.client_certificate import ClientCertificate
from broker.net.first_bytes import HTTP1_API
from broker.net.http1.exchange import Exchange
from broker.net.http1.head import Head

Json = dict[str, Any]

_SAFE = "/:@!$&'()*+,;=-._~"  # characters of a path that are not percent-encoded (RFC 3986, pchar and "/")
_MOST_UNREAD = 65_536  # bytes of a stream that its reader has not taken yet


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewer:
    """The person who looks at a page, as the API sees a caller.

    `caller`: of the session of the console or of a share link (None: there is neither).  `credentials` are headers,
    with which a session begins.  `certificate` is the client's, over TLS.
    """

    caller: Caller | None = None
    credentials: tuple[tuple[bytes, bytes], ...] = ()
    peer: tuple[str, int] | None = None
    certificate: ClientCertificate | None = None


class ApiError(Exception):
    """The API's refusal: an HTTP `status`, a canonical `code` such as "NOT_FOUND", and its message."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


class Api:
    """The REST API of this process."""

    def __init__(self, rest: RestApi) -> None:
        self._rest = rest

    async def get(self, viewer: Viewer, path: str, query: Mapping[str, str | int] | None = None) -> Json:
        """Return the answer to a GET of a path below "/v1/" whose segments are not encoded.

        Raises ApiError for an answer other than 200.
        """
        return await self.send(viewer, "GET", path, query=query)

    async def send(
        self,
        viewer: Viewer,
        method: str,
        path: str,
        *,
        body: Json | None = None,
        query: Mapping[str, str | int] | None = None,
    ) -> Json:
        """Return the answer to a request, as `get` does.  `body` is sent as JSON (None: there is none)."""
        data = b"" if body is None else json.dumps(body).encode()
        connection = _Answer(viewer.peer, viewer.certificate)
        head = _head(viewer, path, query, method=method, length=len(data))
        await self._rest.serve(Exchange(connection, head, data, whole=True), known=viewer.caller)
        status, text = connection.parse()
        if status != 200:
            raise _refusal(status, text)
        answer: Json = json.loads(text)
        return answer

    @asynccontextmanager
    async def stream(
        self,
        viewer: Viewer,
        path: str,
        query: Mapping[str, str | int] | None = None,
        *,
        last_event_id: str = "",
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open Server-Sent Events, and yield them as they come: each part has complete events.

        They end when the API ends them, also because the viewer may no longer read them.  The API waits for a slow
        reader, as it does for a connection.  Raises ApiError for an answer other than 200.
        """
        headers = ((b"last-event-id", last_event_id.encode()),) if last_event_id else ()
        connection = _Stream(viewer.peer, viewer.certificate)
        # The parts of an answer over HTTP/1.0 are those of its body.
        exchange = Exchange(connection, _head(viewer, path, query, version="1.0", headers=headers), whole=True)
        serving = asyncio.create_task(
            self._rest.serve(exchange, known=viewer.caller), name=f"stream of the console: {path}"
        )
        try:
            status, rest = await connection.begin()
            if status != 200:
                raise _refusal(status, rest + b"".join([part async for part in connection.parts()]))
            yield connection.parts(rest)
        finally:
            exchange.leave()
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


def api_of(request: Request) -> Api:
    """Return the API of the process that a request has reached."""
    return Api(request.scope["state"][HTTP1_API])


def peer_of(request: Request) -> tuple[str, int] | None:
    """Return the address and the port of the browser; None: it is connected by a socket of this machine."""
    client = request.client
    return None if client is None else (client.host, client.port)


def _refusal(status: int, body: bytes) -> ApiError:
    error = json.loads(body)["error"]
    return ApiError(status, error["status"], error["message"])


def _head(
    viewer: Viewer,
    path: str,
    query: Mapping[str, str | int] | None,
    *,
    method: str = "GET",
    version: str = "1.1",
    headers: tuple[tuple[bytes, bytes], ...] = (),
    length: int = 0,
) -> Head:
    """Return the head of a request.  `length`: of its body, which is JSON."""
    if length:
        headers = (*headers, (b"content-type", b"application/json"))
    return Head(
        method=method,
        path=b"/v1/" + quote(path, safe=_SAFE).encode(),
        query=urlencode(query or {}).encode(),
        version=version,
        headers=(*viewer.credentials, *headers),
        length=length,
        keep_alive=version == "1.1",
        expects_continue=False,
    )


class _Answer:
    """The connection of an exchange whose answer is kept in memory."""

    def __init__(self, peer: tuple[str, int] | None, certificate: ClientCertificate | None) -> None:
        self.peer = peer
        self.client_certificate = certificate
        self._parts: list[bytes] = []

    def parse(self) -> tuple[int, bytes]:
        """Return the status and the body."""
        head, _, body = b"".join(self._parts).partition(b"\r\n\r\n")
        return int(head.split(b" ", 2)[1]), body

    def write(self, *parts: bytes) -> None:
        self._parts += parts

    def read_on(self) -> None:
        pass

    def ends_now(self) -> bool:
        return False

    def answered(self, *, last: bool) -> None:
        pass

    def cut_off(self) -> None:
        pass

    async def writable(self) -> None:
        pass


class _Stream:
    """The connection of an exchange whose answer is read while it is written."""

    def __init__(self, peer: tuple[str, int] | None, certificate: ClientCertificate | None) -> None:
        self.peer = peer
        self.client_certificate = certificate
        self._unread = bytearray()
        self._has_ended = False
        self._written, self._read = asyncio.Event(), asyncio.Event()

    async def begin(self) -> tuple[int, bytes]:
        """Return the status, and what has come of the body."""
        received = b""
        while b"\r\n\r\n" not in received:
            received += await self._take()
        head, _, body = received.partition(b"\r\n\r\n")
        return int(head.split(b" ", 2)[1]), body

    async def parts(self, first: bytes = b"") -> AsyncIterator[bytes]:
        """Yield the body, after its beginning, as it is written."""
        part = first or await self._take()
        while part:
            yield part
            part = await self._take()

    async def _take(self) -> bytes:
        """Return what was written since the last call; nothing at the end."""
        while not (self._unread or self._has_ended):
            self._written.clear()
            await self._written.wait()
        taken, self._unread = bytes(self._unread), bytearray()
        self._read.set()
        return taken

    def write(self, *parts: bytes) -> None:
        for part in parts:
            self._unread += part
        self._written.set()

    def read_on(self) -> None:
        pass

    def ends_now(self) -> bool:
        return True

    def answered(self, *, last: bool) -> None:
        self._end()

    def cut_off(self) -> None:
        self._end()

    async def writable(self) -> None:
        while len(self._unread) > _MOST_UNREAD and not self._has_ended:
            self._read.clear()
            await self._read.wait()

    def _end(self) -> None:
        self._has_ended = True
        self._written.set()
        self._read.set()
