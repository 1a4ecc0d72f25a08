"""The gRPC API keeps to the budgets of its process, and says when to come back (C7)."""

import asyncio
import tracemalloc
from base64 import b64decode
from collections.abc import AsyncIterator
from urllib.parse import unquote

import pytest
from google.rpc import error_details_pb2, status_pb2
from google.rpc.code_pb2 import DEADLINE_EXCEEDED, UNAVAILABLE
from hypothesis import given
from hypothesis import strategies as st

from broker.api.generated.messages import ListTopicsRequest
from broker.api.grpc import session
from broker.api.grpc.messages import MessageReader
from broker.api.limits.answer_memory import AnswerMemory
from broker.api.row import PUBLISHER
from broker.net.http2.frames import Code, Flag, Kind, frame, reset, window_update
from tests.api.grpc.wire import Answer, Served, Service, packed, request_headers, serving, until


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with serving() as server:
        yield server


def project(name: str) -> bytes:
    request: bytes = ListTopicsRequest(project=f"projects/{name}").SerializeToString()
    return request


def retry_delay(answer: Answer) -> float:
    """Seconds, from the details that clients read."""
    encoded = {**answer.headers, **answer.trailers}[b"grpc-status-details-bin"]
    status = status_pb2.Status.FromString(b64decode(encoded + b"=" * (-len(encoded) % 4)))
    info = error_details_pb2.RetryInfo()
    assert status.details[0].Unpack(info)
    return info.retry_delay.ToMicroseconds() / 1_000_000


async def test_a_request_that_finds_no_capacity_is_refused_with_a_hint_when_to_come_back(served: Served) -> None:
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


async def test_a_request_that_is_given_up_leaves_its_capacity(served: Served) -> None:
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


async def test_whoever_does_not_take_answers_gets_no_more_and_others_do(served: Served) -> None:
    """Of a budget of 100 KB; each connection has a window for 1 KB."""
    service = served.service
    service.answers = AnswerMemory(100_000)
    service.answer = b"a" * 90_000
    async with serving(service=service) as small:
        greedy, good = await small.connect(s4=1_000), await small.connect(s4=1_000)
        greedy.call(1, project("greedy"), method=f"{PUBLISHER}/ListTopics")
        await until(lambda: service.answers.held == 90_000)
        greedy.call(3, project("greedy"), method=f"{PUBLISHER}/ListTopics")
        refused = await greedy.answer(3)
        assert refused.status == UNAVAILABLE
        assert 0.5 <= retry_delay(refused) <= 1.5
        service.answer = b"short"
        greedy.call(5, project("greedy"), method=f"{PUBLISHER}/DeleteTopic")
        assert (await greedy.answer(5)).message == b"short"
        good.call(1, project("good"), method=f"{PUBLISHER}/ListTopics")
        assert (await good.answer(1)).message == b"short"
        greedy.send(window_update(0, 100_000), window_update(1, 100_000))
        await greedy.answer(1)
        await until(lambda: service.answers.held == 0)
        greedy.call(7, project("greedy"), method=f"{PUBLISHER}/ListTopics")
        assert (await greedy.answer(7)).message == b"short"


@pytest.mark.parametrize("method", ["Echo", "Chat"])
async def test_an_answer_that_is_never_taken_is_given_up(
    served: Served, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "ANSWER_SECONDS", 0.05)
    peer = await served.connect(s4=1_000)
    peer.call(1, b"a" * 60_000, method=method)
    answer = await peer.answer(1)
    assert answer.reset == Code.ENHANCE_YOUR_CALM if method == "Echo" else answer.status == UNAVAILABLE
    assert served.service.answers.held == 0
    assert await peer.alive()


@pytest.mark.parametrize("taken", [True, False])
async def test_an_answer_that_is_taken_in_the_moment_in_which_its_call_ends_was_sent(
    served: Served, taken: bool
) -> None:
    """A7: else messages would be given back, and to others, that the client has."""
    peer = await served.connect(s4=1_000)
    peer.send(peer.headers(1, request_headers("Chat")), frame(Kind.DATA, 0, 1, packed(b"a" * 60_000)[:60_005]))
    await until(lambda: served.service.answers.held == 60_000)
    peer.send(window_update(1, 100_000 if taken else 10), reset(1, Code.CANCEL))
    await served.service.gone.wait()
    assert served.service.unsent.is_set() == (not taken)
    assert await peer.alive()


async def test_a_request_counts_for_as_long_as_its_handler_has_it_whoever_is_gone(served: Served) -> None:
    """Else a client that sends large requests and takes them back would fill the memory."""
    peer = await served.connect()
    peer.call(1, b"x" * 60_000, method="Wait", grpc_timeout="1S")
    await served.service.started.wait()
    peer.send(peer.headers(3, request_headers("Hold")), frame(Kind.DATA, Flag.END_STREAM, 3, packed(b"y" * 9_000)))
    await until(lambda: served.service.requests.held == 69_000)
    peer.send(reset(3, Code.CANCEL), reset(1, Code.CANCEL))
    await served.service.gone.wait()
    await until(lambda: served.service.requests.held == 9_000)
    served.service.proceed.set()
    await until(lambda: served.service.requests.held == 0)


async def test_requests_of_a_stream_that_are_not_taken_count(served: Served) -> None:
    requests = served.service.requests
    peer = await served.connect()
    body = packed(b"hold") + packed(b"") * 100 + packed(b"x" * 30_000) + packed(b"y" * 20_000)[:10_000]
    peer.send(peer.headers(1, request_headers("Chat")), frame(Kind.DATA, 0, 1, body))
    await until(lambda: len(served.service.received) == 1)
    assert 100 * 100 + 40_000 < requests.held < 100 * 200 + 45_000  # an empty request takes memory too
    served.service.proceed.set()
    await until(lambda: requests.held == 10_000)
    peer.send(frame(Kind.DATA, Flag.END_STREAM, 1, b"y" * 10_005))
    assert (await peer.answer(1)).status == 0
    assert requests.held == 0


async def test_a_stream_whose_requests_find_no_capacity_is_refused_with_a_hint(served: Served) -> None:
    requests = served.service.requests
    requests.held = requests.limit + requests.limit // 4
    peer = await served.connect()
    peer.send(peer.headers(1, request_headers("Chat")), frame(Kind.DATA, 0, 1, packed(b"x" * 50_000)[:9_000]))
    answer = await peer.answer(1)
    assert answer.status == UNAVAILABLE
    assert 0.5 <= retry_delay(answer) <= 1.5
    await until(lambda: not served.tasks)
    assert requests.held == requests.limit + requests.limit // 4


@pytest.mark.parametrize("method", ["Echo", "Chat"])
async def test_a_request_that_does_not_arrive_is_given_up(method: str) -> None:
    async with serving(ping_seconds=0.5) as served:
        peer = await served.connect()
        peer.send(peer.headers(1, request_headers(method)))
        ending = asyncio.create_task(peer.answer(1))
        for byte in packed(b"never complete")[:-1] * 100:
            peer.send(frame(Kind.DATA, 0, 1, bytes([byte])))
            await asyncio.sleep(0.05)
            if ending.done():
                break
        assert (await ending).status == DEADLINE_EXCEEDED
        assert served.service.requests.held == 0


async def test_a_request_that_comes_in_pieces_after_a_long_silence_has_its_own_time() -> None:
    async with serving(ping_seconds=3600) as served:
        peer = await served.connect()
        peer.send(peer.headers(1, request_headers("Chat")), frame(Kind.DATA, 0, 1, packed(b"a")))
        await peer.next_of(Kind.DATA, 1)
        connection = next(iter(served.connections))

        async def tick() -> None:
            assert await peer.alive()
            connection._tick()

        for _ in range(6):
            await tick()
        late = packed(b"b")
        peer.send(frame(Kind.DATA, 0, 1, late[:3]))
        for _ in range(2):
            await tick()
        peer.send(frame(Kind.DATA, Flag.END_STREAM, 1, late[3:]))
        assert (await peer.answer(1)).status == 0


async def test_what_was_given_back_is_not_sent_though_the_window_opens_then(served: Served) -> None:
    """A7: a client would have a message that is another's."""
    peer = await served.connect(s4=0)
    peer.send(peer.headers(1, request_headers("Chat")), frame(Kind.DATA, 0, 1, packed(b"a")))
    await until(lambda: served.service.answers.held == 1)
    [connection] = served.connections
    served.service.when_unsent = lambda: connection._on_window_update(0, 1, (1_000).to_bytes(4, "big"))
    peer.send(frame(Kind.DATA, 0, 1, b"\7" + packed(b"")[1:]))  # a flag that nobody knows
    answer = await peer.answer(1)
    assert served.service.unsent.is_set()
    assert (answer.status != 0, answer.body) == (True, b"")


async def test_a_stream_without_requests_for_a_while_goes_on() -> None:
    async with serving(ping_seconds=0.5) as served:
        peer = await served.connect()
        peer.send(peer.headers(1, request_headers("Chat")), frame(Kind.DATA, 0, 1, packed(b"a")))
        await peer.next_of(Kind.DATA, 1)
        for _ in range(25):
            assert await peer.alive()
            await asyncio.sleep(0.1)
        peer.send(frame(Kind.DATA, Flag.END_STREAM, 1, packed(b"b")))
        assert (await peer.answer(1)).status == 0


def test_a_message_that_comes_in_tiny_pieces_takes_no_more_than_its_bytes() -> None:
    """Pieces of two bytes, kept as they come, would take thirty times as much."""
    reader = MessageReader(b"identity")
    whole = packed(b"ab" * 100_000)
    tracemalloc.start()
    try:
        for at in range(0, len(whole) - 1, 2):  # which leaves one
            assert reader.feed(whole[at : at + 2]) == []
        assert tracemalloc.get_traced_memory()[1] < 4 * len(whole)
    finally:
        tracemalloc.stop()
    assert reader.feed(whole[-1:]) == [(whole[5:], None)]


@given(st.lists(st.binary(max_size=40), max_size=12), st.lists(st.integers(1, 30), min_size=1, max_size=9))
def test_messages_come_out_as_they_went_in_however_they_are_cut(messages: list[bytes], cuts: list[int]) -> None:
    reader = MessageReader(b"identity")
    body, read, turn = b"".join(map(packed, messages)), list[bytes](), 0
    while body:
        size = cuts[turn % len(cuts)]
        piece, body, turn = body[:size], body[size:], turn + 1
        read += [message.data for message in reader.feed(piece)]
    assert read == messages
    assert not reader.is_within_message


async def test_requests_that_do_not_end_leave_capacity_for_those_that_do_and_for_other_connections() -> None:
    async with serving(service=Service(400_000)) as served:
        requests = served.service.requests
        peer, other = await served.connect(s4=1_000_000), await served.connect()
        peer.send(window_update(0, 1_000_000))
        begun = packed(b"x" * 150_000)
        for stream_id in (1, 3):
            pieces = begun[:60_000], begun[60_000:120_000]
            peer.send(
                peer.headers(stream_id, request_headers()), *(frame(Kind.DATA, 0, stream_id, p) for p in pieces)
            )
        await until(lambda: requests.arriving == 240_000)
        peer.send(peer.headers(5, request_headers()), frame(Kind.DATA, 0, 5, begun[:40_000]))
        refused = await peer.answer(5)
        assert refused.status == UNAVAILABLE
        assert 0.5 <= retry_delay(refused) <= 1.5
        other.send(other.headers(1, request_headers()), frame(Kind.DATA, 0, 1, packed(b"z" * 60_000)[:40_000]))
        other.send(frame(Kind.DATA, Flag.END_STREAM, 1, b"z" * 20_005))
        assert (await other.answer(1)).message == b"z" * 60_000
        peer.call(7, b"y" * 50_000)
        assert (await peer.answer(7)).message == b"y" * 50_000
        peer.send(reset(1, Code.CANCEL), frame(Kind.DATA, Flag.END_STREAM, 3, b"x" * 30_005))
        assert (await peer.answer(3)).message == b"x" * 150_000
        await until(lambda: (requests.arriving, requests.held) == (0, 0))
        assert requests.take_share(("all of it",), requests.limit, own=0)
