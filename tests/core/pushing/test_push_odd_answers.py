"""A running broker acknowledges what an endpoint has answered with success as RFC 9112 reads it, and nothing else.

The endpoint is a raw socket.  The push client alone is tested with the same answers, in pieces too, in
tests/core/pushing/client/test_odd_answers.py.
"""

import asyncio
import base64
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from functools import partial

import pytest

from tests.core.pushing.client.test_odd_answers import ACCEPTED, REFUSED
from tests.fixtures.broker import Json, Rest, eventually

_SUCCESS = {102, 200, 201, 202, 204}
_ACKED = {name: raw for name, raw, status, *_ in ACCEPTED if status in _SUCCESS}
_FAILED = {name: raw for name, raw, status, *_ in ACCEPTED if status not in _SUCCESS}
_REFUSED = {  # some of them: each is retried after the backoff of a failing endpoint
    name: REFUSED[name]
    for name in ("lengths that differ", "an empty length", "a line without a colon", "a zero byte")
}
_AS_USUAL = b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"
_LENGTH = re.compile(rb"content-length: *([0-9]+)", re.IGNORECASE)


class Endpoint:
    """Answers the first push of each message with the bytes that its data name, and further ones as usual."""

    def __init__(self) -> None:
        self.pushes: Counter[str] = Counter()  # by the data of the message
        self.url = ""
        self._answers: Mapping[str, bytes] = _ACKED | _FAILED | _REFUSED
        self._serving: list[tuple[asyncio.Task[None] | None, asyncio.StreamWriter]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.append((asyncio.current_task(), writer))
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = _LENGTH.search(head)
                assert length is not None
                body: Json = json.loads(await reader.readexactly(int(length[1])))
                name = base64.b64decode(body["message"]["data"]).decode()
                self.pushes[name] += 1
                answer = self._answers[name] if self.pushes[name] == 1 else _AS_USUAL
                writer.write(answer)
                await writer.drain()
                if b"ength" not in answer and b"chunked" not in answer:  # it ends with its connection
                    break
        writer.close()

    def is_repeated(self, name: str) -> bool:
        return self.pushes[name] > 1

    async def end(self) -> None:
        """Closes all connections."""
        for _, writer in self._serving:
            writer.close()
        await asyncio.gather(*(task for task, _ in self._serving if task is not None))


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    endpoint = Endpoint()
    server = await asyncio.start_server(endpoint.serve, "127.0.0.1", 0)
    endpoint.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/push"
    yield endpoint
    server.close()
    await endpoint.end()


async def _subscribe(rest: Rest, endpoint: Endpoint) -> None:
    """With an ack deadline so long that no message is pushed again because it has passed."""
    await rest.create_topic()
    await rest.create_subscription(pushConfig={"pushEndpoint": endpoint.url}, ackDeadlineSeconds=600)


async def _is_settled(rest: Rest) -> bool:
    position = await rest.ok("GET", f"{rest.subscription()}/snapshot")
    outstanding = sum(int(shard["outstandingMessages"]) for shard in position["shards"])
    return int(position["undeliveredMessages"]) + outstanding == 0


async def test_a_success_that_http_accepts_acknowledges_its_message_once(rest: Rest, endpoint: Endpoint) -> None:
    await _subscribe(rest, endpoint)
    await rest.publish(*_ACKED)
    await eventually(lambda: len(endpoint.pushes) == len(_ACKED))
    await eventually(lambda: _is_settled(rest))
    assert endpoint.pushes == dict.fromkeys(_ACKED, 1)
    status = await rest.ok("GET", f"{rest.subscription()}:pushStatus")
    assert (status["state"], "lastFailure" in status) == ("ACTIVE", False)


async def test_an_answer_that_http_refuses_is_a_failure_that_is_told_and_its_message_is_pushed_again(
    rest: Rest, endpoint: Endpoint
) -> None:
    """One after the other, so that each success ends the backoff of the failure before it."""
    await _subscribe(rest, endpoint)
    for number, name in enumerate(_REFUSED | _FAILED, 1):
        [message_id] = await rest.publish(name)
        await eventually(partial(endpoint.is_repeated, name))
        await eventually(lambda: _is_settled(rest))

        async def attribution(count: int = number) -> list[Json]:
            found = await rest.ok("GET", f"{rest.subscription()}:pushFailures?pageSize=100")
            failures: list[Json] = found.get("pushFailures", [])
            return failures if len(failures) == count else []

        [failure] = [one for one in await eventually(attribution) if one["messageId"] == message_id]
        if name in _REFUSED:
            assert failure["detail"].startswith("the answer is not valid HTTP/1.1: "), failure
        else:
            assert failure["status"] == 503
    assert set(endpoint.pushes.values()) == {2}
