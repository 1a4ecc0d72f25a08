"""Calls of the REST API from within the process, on behalf of the viewer of a page.

A call passes everything that a request over the network passes: authentication, permissions, limits, turns and the
audit log.  So a page can show nothing that its viewer could not get with `curl`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from starlette.requests import Request

from broker.api.rest.app import RestApi
from broker.model.client_certificate import ClientCertificate
from broker.net.first_bytes import HTTP1_API
from broker.net.http1.exchange import Exchange
from broker.net.http1.head import Head

Json = dict[str, Any]

_SAFE = "/:@!$&'()*+,;=-._~"  # characters of a path that are not percent-encoded (RFC 3986, pchar and "/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewer:
    """The person who looks at a page, as the API sees a caller.

    `credentials` are headers, none where authentication is off.  `certificate` is the client's, over TLS.
    """

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
        return await self._call(viewer, "GET", path, query=urlencode(query or {}))

    async def post(self, viewer: Viewer, path: str, body: Json) -> Json:
        """Return the answer to a POST, for the calls that only read and yet take a body.

        Raises ApiError for an answer other than 200.
        """
        return await self._call(viewer, "POST", path, body=json.dumps(body).encode())

    async def _call(self, viewer: Viewer, method: str, path: str, *, query: str = "", body: bytes = b"") -> Json:
        connection = _Answer(viewer.peer, viewer.certificate)
        head = Head(
            method=method,
            path=b"/v1/" + quote(path, safe=_SAFE).encode(),
            query=query.encode(),
            version="1.1",
            headers=viewer.credentials,
            length=len(body),
            keep_alive=True,
            expects_continue=False,
        )
        await self._rest.serve(Exchange(connection, head, body, whole=True))
        status, content = connection.parse()
        if status != 200:
            raise _refusal(status, content)
        answer: Json = json.loads(content)
        return answer


def api_of(request: Request) -> Api:
    """Return the API of the process that a request has reached."""
    return Api(request.scope["state"][HTTP1_API])


def _refusal(status: int, body: bytes) -> ApiError:
    error = json.loads(body)["error"]
    return ApiError(status, error["status"], error["message"])


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
