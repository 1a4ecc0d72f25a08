"""The REST door: from an ASGI call to a handler's answer.

This is plain ASGI rather than Starlette routes: the table in routes.py is looked up by one dictionary key, and a
hot call pays for nothing that it does not use.  Starlette serves what surrounds it (broker/app.py).
"""

import logging
import zlib
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import parse_qsl, unquote

from starlette.types import Receive, Scope, Send

from broker.domain.errors import BrokerError, Internal, InvalidArgument, NotFound
from broker.domain.payload import MAX_PAYLOAD_BYTES, payload_too_large
from broker.front.rest.call import Call
from broker.front.rest.errors import encode_error
from broker.front.rest.routes import Handler, Route
from broker.services.services import Services

PREFIX = "/v1/"
MAX_KNOWN_PATHS = 20_000  # some 10 MB
MAX_KNOWN_PATH = 512  # bytes

logger = logging.getLogger(__name__)


class RestDoor:
    """Serves `routes` below /v1/."""

    def __init__(self, services: Services, routes: Sequence[Route]) -> None:
        self._services = services
        self._found: dict[tuple[str, bytes], tuple[Handler, str]] = {}  # what _look_up has found, of short paths
        self._handlers: dict[tuple[str, str], Handler] = {
            (route.method, route.path): route.handler for route in routes
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = 200
        try:
            handler, name = self._find(scope)
            body = await _read_body(scope, receive)
            call = Call(self._services, name, _query(scope), body, _hung_up(receive))
            answer = await handler(call)
        except BrokerError as error:
            status, answer = encode_error(error)
        except Exception:
            logger.exception("unexpected fault in %s %s", scope["method"], scope["path"])
            status, answer = encode_error(Internal("The broker met an unexpected fault; its log has the details."))
        await send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [
                    (b"content-type", b"application/json; charset=UTF-8"),
                    (b"content-length", b"%d" % len(answer)),
                ],
            }
        )
        await send({"type": "http.response.body", "body": answer})

    def _find(self, scope: Scope) -> tuple[Handler, str]:
        """The handler of a call and the name in its path.  Clients call the same few paths again and again."""
        method, path = scope["method"], scope["raw_path"]
        found = self._found.get((method, path))
        if found is None:
            found = self._look_up(method, path)
            if len(path) <= MAX_KNOWN_PATH:
                if len(self._found) >= MAX_KNOWN_PATHS:
                    self._found.clear()
                self._found[method, path] = found
        return found

    def _look_up(self, method: str, path: bytes) -> tuple[Handler, str]:
        try:
            segments = [unquote(s, errors="strict") for s in path.decode("ascii").split("?", 1)[0].split("/")[2:]]
        except UnicodeDecodeError:
            raise InvalidArgument("The path is not UTF-8.") from None
        if any("\0" in segment for segment in segments):
            raise InvalidArgument("The path has the character U+0000.")  # PostgreSQL's text cannot hold it
        last, colon, verb = segments[-1].partition(":")
        segments[-1] = last
        # "projects/p/topics/t" -> "projects/*/topics/*"; an odd segment at the end is a collection or a plain verb
        shape = "/".join("*" if index % 2 else segment for index, segment in enumerate(segments)) + colon + verb
        handler = self._handlers.get((method, shape))
        if handler is None or not all(segments):
            raise NotFound(
                f"The requested method was not found ({method} {PREFIX}{'/'.join(segments)}{colon}{verb})."
            )
        return handler, "/".join(segments[: len(segments) // 2 * 2])


def _query(scope: Scope) -> dict[str, str]:
    text: bytes = scope["query_string"]
    if not text:
        return {}
    query: dict[str, str] = {}
    for key, value in parse_qsl(text.decode("latin-1"), keep_blank_values=True, errors="replace"):
        query.setdefault(key, value)
    return query


async def _read_body(scope: Scope, receive: Receive) -> bytes:
    """The request's body, decompressed.  Raises InvalidArgument past the limit, without reading on."""
    message = await receive()
    body: bytes = message.get("body", b"")
    if message.get("more_body"):
        chunks = [body]
        size = len(body)
        while message.get("more_body"):
            message = await receive()
            if message["type"] == "http.disconnect":
                raise InvalidArgument("The caller closed the connection within the request.")
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            if size > MAX_PAYLOAD_BYTES:
                raise payload_too_large()
        body = b"".join(chunks)
    if len(body) > MAX_PAYLOAD_BYTES:
        raise payload_too_large()
    for name, value in scope["headers"]:
        if name == b"content-encoding" and body:
            return _decompressed(body, value.strip().lower())
    return body


def _decompressed(body: bytes, encoding: bytes) -> bytes:
    if encoding == b"identity":
        return body
    if encoding not in (b"gzip", b"x-gzip", b"deflate"):
        raise InvalidArgument(f"Unsupported Content-Encoding: {encoding.decode('latin-1')}.")
    decompressor = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)  # either header
    try:
        plain = decompressor.decompress(body, MAX_PAYLOAD_BYTES + 1)
    except zlib.error as error:
        raise InvalidArgument(f"The body is not valid {encoding.decode()}.") from error
    if len(plain) > MAX_PAYLOAD_BYTES:
        raise payload_too_large()
    if not decompressor.eof:
        raise InvalidArgument(f"The body is not valid {encoding.decode()}: it ends early.")
    return plain


def _hung_up(receive: Receive) -> Callable[[], Awaitable[None]]:
    async def hung_up() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    return hung_up
