"""Push endpoints that keep what they are sent: for ever, or for seconds; of 600 projects, or of one that is changed
again and again.
"""

import asyncio
from collections.abc import Callable
from typing import cast

import httptools
import httpx

_SUBSCRIPTIONS = 600
_CHANGES = 499
_MESSAGES = 1_000  # of a publish
_SLOW_SECONDS = 10.0
_PAUSE_SECONDS = 0.02
_FULL_FORCE_SECONDS = 15.0  # until all that goes out at once is out
_TOPIC = "projects/greedy/topics/pushes"
_BODY = {"messages": [{"data": "eA=="}] * _MESSAGES}


async def hanging_endpoints(host: str, port: int, ready: Callable[[], None]) -> None:
    """600 subscriptions, each of a project of its own, at an endpoint that never answers."""
    await _flood(host, port, ready, None)


async def slow_endpoints(host: str, port: int, ready: Callable[[], None]) -> None:
    """The same, where the endpoint takes ten seconds."""
    await _flood(host, port, ready, _SLOW_SECONDS)


async def _flood(host: str, port: int, ready: Callable[[], None], seconds: float | None) -> None:
    async with _client(host, port) as client, await _endpoint(seconds) as server:
        await client.put(_TOPIC)
        url = _url(server)
        for number in range(_SUBSCRIPTIONS):
            await _subscribe(client, f"projects/greedy-{number}/subscriptions/pushed", f"{url}/{number}")
        await client.post(f"{_TOPIC}:publish", json=_BODY)
        await asyncio.sleep(_FULL_FORCE_SECONDS)
        ready()
        while True:
            await client.post(f"{_TOPIC}:publish", json=_BODY)
            await asyncio.sleep(1)


async def changed_endpoints(host: str, port: int, ready: Callable[[], None]) -> None:
    """A subscription whose endpoint never answers, and is another one 499 times; and then again."""
    async with _client(host, port) as client, await _endpoint(None) as server:
        await client.put(_TOPIC)
        name, url, number = "projects/greedy/subscriptions/pushed", _url(server), 0
        await _subscribe(client, name, url)
        for _ in range(10):
            await client.post(f"{_TOPIC}:publish", json=_BODY)
        while True:
            number += 1
            config = {"pushConfig": {"pushEndpoint": f"{url}/{number}"}}
            (await client.post(f"{name}:modifyPushConfig", json=config)).raise_for_status()
            await asyncio.sleep(_PAUSE_SECONDS)
            if number == _CHANGES:
                ready()


def _client(host: str, port: int) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"http://{host}:{port}/v1/", timeout=120)


async def _subscribe(client: httpx.AsyncClient, name: str, url: str) -> None:
    body = {"topic": _TOPIC, "ackDeadlineSeconds": 600, "pushConfig": {"pushEndpoint": url}}
    (await client.put(name, json=body)).raise_for_status()


class _Endpoint(asyncio.Protocol):
    """A connection: answers each request so many seconds late; None: never."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        if self._seconds is not None:
            asyncio.get_running_loop().call_later(self._seconds, self._answer)

    def _answer(self) -> None:
        cast(asyncio.Transport, self._transport).write(b"HTTP/1.1 204 No Content\r\n\r\n")


async def _endpoint(seconds: float | None) -> asyncio.Server:
    return await asyncio.get_running_loop().create_server(lambda: _Endpoint(seconds), "127.0.0.1", 0, backlog=4096)


def _url(server: asyncio.Server) -> str:
    host, port = server.sockets[0].getsockname()[:2]
    return f"http://{host}:{port}"
