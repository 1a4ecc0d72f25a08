"""Applications of ASGI behind the port's HTTP/1.1: their answers on the wire, and their defects."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.fixtures.broker import eventually
from tests.limits.raw import calling, request
from tests.net.http1 import Served, serving, without_ids


async def _application(scope: Any, receive: Any, send: Any) -> None:
    """Answers in parts: of a length that is given (/app/length) or not; with defects."""
    if scope["path"] == "/app/early":
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"early"})
        assert (await receive())["type"] == "http.disconnect"
        raise RuntimeError("a defect behind the answer")
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message["body"]), message["more_body"]
    said = f"{scope['method']} {scope['path']} {scope['query_string'].decode()} {size} {scope['state']['key']}"
    headers = [(b"X-Told", b"yes")]
    if scope["path"] == "/app/none":
        await send({"type": "http.response.start", "status": 204})
        await send({"type": "http.response.body"})
        return
    if scope["path"] == "/app/injected":
        headers = [(b"X-Told", b"yes\r\nX-Other: no")]
    if scope["path"] in ("/app/length", "/app/short"):
        headers.append((b"content-length", b"%d" % len(said)))
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for part in said[:5], said[5:]:
        if scope["path"] == "/app/fault":
            raise RuntimeError("a defect")
        await send({"type": "http.response.body", "body": part.encode(), "more_body": True})
    if scope["path"] != "/app/short":
        await send({"type": "http.response.body"})
        assert (await receive())["type"] == "http.disconnect"
    else:
        await send({"type": "http.response.body", "body": b"more than was said"})


@pytest.fixture
async def framework() -> AsyncIterator[Served]:
    async with serving(_application) as served:
        yield served


CLOSE = "Connection: close"
TOLD = b"HTTP/1.1 200 OK\r\nX-Told: yes\r\n"
BY_APPLICATION = {
    "in chunks": (
        request("POST", "/app/%61?b", CLOSE, body=b"{}"),
        TOLD + b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n"
        b"5\r\nPOST \r\n10\r\n/app/a b 2 value\r\n0\r\n\r\n",
    ),
    "in chunks on a connection that is kept": (
        request("GET", "/app") + request("GET", "/app/none", CLOSE),
        TOLD + b"transfer-encoding: chunked\r\n\r\n5\r\nGET /\r\nc\r\napp  0 value\r\n0\r\n\r\n"
        b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n",
    ),
    "of a length that is given": (
        request("GET", "/app/length", CLOSE),
        TOLD + b"content-length: 24\r\nconnection: close\r\n\r\nGET /app/length  0 value",
    ),
    "to HTTP/1.0 up to the end": (
        b"GET /app HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        TOLD + b"connection: close\r\n\r\nGET /app  0 value",
    ),
    "to HEAD": (
        request("HEAD", "/app/length", CLOSE),
        TOLD + b"content-length: 25\r\nconnection: close\r\n\r\n",
    ),
    "with nothing": (
        request("GET", "/app/none", CLOSE),
        b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n",
    ),
}


@pytest.mark.parametrize("name", BY_APPLICATION)
async def test_an_application_of_asgi_answers_as_it_likes(framework: Served, name: str) -> None:
    sent, expected = BY_APPLICATION[name]
    async with calling(framework.url) as caller:
        caller.send(sent)
        assert without_ids(await caller.rest()) == expected


@pytest.mark.parametrize(("path", "begun"), [("/app/fault", False), ("/app/short", True), ("/app/injected", False)])
async def test_a_defect_of_an_application_ends_its_connection_or_is_told(
    framework: Served, path: str, begun: bool
) -> None:
    async with calling(framework.url) as caller:
        caller.send(request("GET", path, CLOSE))
        answer = await caller.rest()
    assert answer.startswith(b"HTTP/1.1 200 " if begun else b"HTTP/1.1 500 ") or (begun and not answer)
    assert b"X-Other" not in answer
    [fault] = framework.faults
    assert fault.startswith(f"{path}: ")


async def test_a_defect_behind_a_whole_answer_is_told_and_does_not_touch_the_next_request(
    framework: Served,
) -> None:
    """Frameworks answer a defect with 500 themselves, and raise it for the server's log."""
    async with calling(framework.url) as caller:
        caller.send(request("GET", "/app/early"), request("GET", "/wait", CLOSE))
        assert (await caller.answer()).body == b"early"
        await eventually(lambda: framework.faults)
        framework.proceed.set()
        assert (await caller.rest()).endswith(b"\r\n\r\nGET /wait  0")
    assert framework.faults == ["/app/early: a defect behind the answer"]


async def test_a_body_is_not_asked_for_behind_the_answer(framework: Served) -> None:
    async with calling(framework.url) as caller:
        caller.send(request("POST", "/app/early", "Expect: 100-continue", "Content-Length: 5"))
        assert without_ids(await caller.rest()) == (
            b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nearly"
        )
    await eventually(lambda: framework.faults)
    assert framework.faults == ["/app/early: a defect behind the answer"]
