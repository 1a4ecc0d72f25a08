"""The gRPC door keeps to the budgets of its process, and says when to come back (C7)."""

from base64 import b64decode
from collections.abc import AsyncIterator
from urllib.parse import unquote

import pytest
from google.rpc import error_details_pb2, status_pb2
from google.rpc.code_pb2 import UNAVAILABLE

from broker.front.grpc import unary
from broker.front.grpc.http2.frames import Code, Flag, Kind, frame, reset, window_update
from tests.grpc.wire import Answer, Served, packed, request_headers, serving, until


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with serving() as server:
        yield server


def retry_delay(answer: Answer) -> float:
    """Seconds, from the details that clients read."""
    encoded = {**answer.headers, **answer.trailers}[b"grpc-status-details-bin"]
    status = status_pb2.Status.FromString(b64decode(encoded + b"=" * (-len(encoded) % 4)))
    info = error_details_pb2.RetryInfo()
    assert status.details[0].Unpack(info)
    return info.retry_delay.ToMicroseconds() / 1_000_000


async def test_a_request_that_finds_no_room_is_refused_with_a_hint_when_to_come_back(served: Served) -> None:
    requests = served.service.requests
    others = requests.held = requests.limit + requests.limit // 4 - 100_000  # what other connections hold
    peer = await served.connect()
    peer.send(window_update(0, 1_000_000))
    peer.call(1, b"x" * 60_000, method="Wait")
    await served.service.started.wait()
    assert requests.held == others + 60_000
    body = packed(b"y" * 110_000)
    peer.send(peer.headers(3, request_headers()), frame(Kind.DATA, 0, 3, body[:60_000]))
    peer.send(frame(Kind.DATA, Flag.END_STREAM, 3, body[60_000:]))
    refused = await peer.answer(3)
    assert refused.status == UNAVAILABLE
    assert "holds as much of requests" in unquote({**refused.headers, **refused.trailers}[b"grpc-message"].decode())
    assert 0.5 <= retry_delay(refused) <= 1.5
    served.service.proceed.set()
    assert (await peer.answer(1)).message == b"done"
    peer.call(5, b"x" * 60_000)
    assert (await peer.answer(5)).message == b"x" * 60_000
    assert requests.held == others


async def test_a_request_that_is_given_up_leaves_its_room(served: Served) -> None:
    peer = await served.connect()
    peer.send(peer.headers(1, request_headers()), frame(Kind.DATA, 0, 1, packed(b"z" * 9_000)[:5_000]))
    await until(lambda: served.service.requests.held == 5_000)
    peer.send(reset(1, Code.CANCEL))
    await until(lambda: served.service.requests.held == 0)


@pytest.mark.parametrize("method", ["Echo", "Chat"])
async def test_an_answer_counts_until_it_is_taken(served: Served, method: str) -> None:
    peer = await served.connect(s4=1_000)  # the client's window is small, and stays so
    peer.call(1, b"a" * 60_000, method=method)
    await until(lambda: served.service.answers.held == 60_000)
    peer.send(window_update(1, 100_000))
    await peer.answer(1)
    await until(lambda: served.service.answers.held == 0)


@pytest.mark.parametrize("method", ["Echo", "Chat"])
async def test_an_answer_that_is_never_taken_is_given_up(
    served: Served, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unary, "ANSWER_SECONDS", 0.05)
    peer = await served.connect(s4=1_000)
    peer.call(1, b"a" * 60_000, method=method)
    answer = await peer.answer(1)
    assert answer.reset == Code.ENHANCE_YOUR_CALM if method == "Echo" else answer.status == UNAVAILABLE
    assert served.service.answers.held == 0
    assert await peer.alive()
