"""The REST door: from an ASGI call to a handler's answer.

This is plain ASGI rather than Starlette routes: the table in routes.py is looked up by one dictionary key, and a
hot call pays for nothing that it does not use.  Starlette serves what surrounds it (broker/app.py).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

from starlette.types import Message, Receive, Scope, Send

from broker.domain.errors import BrokerError, Internal, InvalidArgument, NotFound, Unavailable
from broker.domain.request_memory import RequestMemory
from broker.front.admission import Admission, admission_of
from broker.front.call_log import CallLog
from broker.front.resource_calls import HOT, ResourceCalls
from broker.front.rest.body import BodyReader
from broker.front.rest.call import Call
from broker.front.rest.errors import encode_error
from broker.front.rest.routes import Handler, Route
from broker.services.services import Services

PREFIX = "/v1/"
LARGE_ANSWER_BYTES = 65_536  # the transport takes as much without asking the reader to catch up
MAX_KNOWN_PATHS = 20_000  # some 10 MB
MAX_KNOWN_PATH = 512  # bytes


class _Target(NamedTuple):
    handler: Handler
    admission: Admission


class RestDoor:
    """Serves `routes` below /v1/.

    `requests` and `answers` are budgets of the process: of bodies from their arrival to the answer, and of large
    answers until their readers have taken them.  `resource_calls` bounds the calls that are not hot.
    """

    def __init__(
        self,
        services: Services,
        routes: Sequence[Route],
        *,
        requests: RequestMemory,
        answers: RequestMemory,
        resource_calls: ResourceCalls,
        calls: CallLog,
    ) -> None:
        self._services = services
        self._calls = calls
        self._requests, self._answers = requests, answers
        self._bodies = BodyReader(requests)
        self._targets = _targets(routes, requests, resource_calls)
        self._found: dict[tuple[str, bytes], tuple[_Target, str]] = {}  # what _look_up has found, of short paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, retry_after, held = 200, None, 0
        began = perf_counter() if self._calls.on else 0.0
        try:
            target, name = self._find(scope)
            body, held = await self._bodies.read(scope, receive, target.admission)
            call = Call(self._services, name, _query(scope), body, scope["headers"], _hung_up(receive))
            answer = await target.handler(call)
        except BrokerError as error:
            self._calls.refused(error)
            status, answer, retry_after = encode_error(error)
        except asyncio.CancelledError:  # the server does that to what is left when it has stopped for long enough
            status, answer, retry_after = encode_error(Unavailable("The broker stops; try again."))
        except Exception as error:
            self._calls.fault(_shown(scope), error)
            fault = Internal("The broker met an unexpected fault; its log has the details.")
            status, answer, retry_after = encode_error(fault)
        finally:
            self._requests.held -= held
        if began:
            self._calls.answered(_shown(scope), status, perf_counter() - began, scope.get("client"))
        headers = [
            (b"content-type", b"application/json; charset=UTF-8"),
            (b"content-length", b"%d" % len(answer)),
        ]
        if retry_after is not None:
            headers.append((b"retry-after", b"%d" % retry_after))
        start = {"type": "http.response.start", "status": status, "headers": headers}
        if len(answer) < LARGE_ANSWER_BYTES:
            await send(start)
            await send({"type": "http.response.body", "body": answer})
        else:
            await self._send_large(send, start, answer)

    async def _send_large(self, send: Send, start: Message, answer: bytes) -> None:
        """The answer counts until the reader has taken all but the last 64 KB; the server waits with its end."""
        size = len(answer)
        self._answers.held += size
        try:
            await send(start)
            await send({"type": "http.response.body", "body": answer, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._answers.held -= size

    def _find(self, scope: Scope) -> tuple[_Target, str]:
        """The target of a call and the name in its path.  Clients call the same few paths again and again."""
        method, path = scope["method"], scope["raw_path"]
        found = self._found.get((method, path))
        if found is None:
            found = self._look_up(method, path)
            if len(path) <= MAX_KNOWN_PATH:
                if len(self._found) >= MAX_KNOWN_PATHS:
                    self._found.clear()
                self._found[method, path] = found
        return found

    def _look_up(self, method: str, path: bytes) -> tuple[_Target, str]:
        try:
            parts = [unquote(part, errors="strict") for part in path.decode("ascii").split("?", 1)[0].split("/")]
        except UnicodeDecodeError:
            raise InvalidArgument("The path is not UTF-8.") from None
        if any("\0" in part for part in parts):
            raise InvalidArgument("The path has the character U+0000.")  # PostgreSQL's text cannot hold it
        if len(parts) < 3 or parts[1] != "v1":  # decoded as a whole it begins with /v1/: one of its slashes is %2F
            raise NotFound(f"The requested method was not found ({method} {'/'.join(parts)}).")
        segments = parts[2:]
        last, colon, verb = segments[-1].partition(":")
        segments[-1] = last
        # "projects/p/topics/t" -> "projects/*/topics/*"; an odd segment at the end is a collection or a plain verb
        shape = "/".join("*" if index % 2 else segment for index, segment in enumerate(segments)) + colon + verb
        target = self._targets.get((method, shape))
        if target is None or not all(segments):
            raise NotFound(
                f"The requested method was not found ({method} {PREFIX}{'/'.join(segments)}{colon}{verb})."
            )
        return target, "/".join(segments[: len(segments) // 2 * 2])


def _targets(
    routes: Sequence[Route], requests: RequestMemory, resource_calls: ResourceCalls
) -> dict[tuple[str, str], _Target]:
    """By method and path."""
    return {
        (route.method, route.path): _Target(
            route.handler if route.rpc in HOT else resource_calls.bounded(route.handler),
            admission_of(route.rpc, requests),
        )
        for route in routes
    }


def _shown(scope: Scope) -> str:
    """The call, for the log; the query is the caller's own."""
    return f"{scope['method']} {scope['path']}"


def _query(scope: Scope) -> dict[str, str]:
    text: bytes = scope["query_string"]
    if not text:
        return {}
    query: dict[str, str] = {}
    for key, value in parse_qsl(text.decode("latin-1"), keep_blank_values=True, errors="replace"):
        query.setdefault(key, value)
    return query


def _hung_up(receive: Receive) -> Callable[[], Awaitable[None]]:
    async def hung_up() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    return hung_up
