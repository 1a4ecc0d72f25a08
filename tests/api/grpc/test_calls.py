"""Calls as gRPC's own client library makes them, on an API without a database."""

import asyncio
import gc
import gzip
import struct
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.api.grpc import held
from broker.api.grpc.messages import MessageReader
from broker.api.grpc.unary import UnaryRpc
from broker.model.errors import InvalidArgument
from broker.net.http2.frames import Code, Flag, Kind, frame, window_update
from broker.net.http2.stream import Stream
from broker.net.limits.payload import MAX_PAYLOAD_BYTES
from tests.api.grpc.wire import Served, packed, request_headers, serving, until

INVALID_ARGUMENT, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE = 3, 4, 8, 12, 13, 14


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with serving() as server:
        yield server


def channel(served: Served, **options: Any) -> grpc.Channel:
    return grpc.insecure_channel(f"127.0.0.1:{served.port}", options=list(options.items()))


async def in_thread(act: Callable[[], Any]) -> Any:
    """gRPC's client blocks; the API is served by this loop meanwhile."""
    return await asyncio.to_thread(act)


@pytest.mark.parametrize("compression", list(grpc.Compression))
@pytest.mark.parametrize("size", [0, 1, 20_000, 3_000_000])
async def test_messages_of_any_size_are_carried_both_ways(
    served: Served, compression: grpc.Compression, size: int
) -> None:
    message = bytes(number * number % 251 for number in range(1000)) * (size // 1000) or b"x" * size

    def call() -> bytes:
        with channel(served, **{"grpc.max_receive_message_length": -1}) as opened:
            answer: bytes = opened.unary_unary("/test.Service/Echo")(message, compression=compression, timeout=20)
            return answer

    assert await in_thread(call) == message


async def test_a_call_that_is_over_leaves_nothing_to_the_collector(served: Served) -> None:
    """Thousands that wait, end and begin again would keep it, and so the event loop, busy."""
    echo = channel(served).unary_unary("/test.Service/Echo")
    await in_thread(lambda: echo(b"first"))
    gc.collect()
    gc.disable()
    try:
        await in_thread(lambda: [echo(b"a") for _ in range(5)])
        await until(lambda: not served.tasks)
        assert [type(each) for each in gc.get_objects() if isinstance(each, Stream | UnaryRpc)] == []
    finally:
        gc.enable()


async def test_a_call_that_its_caller_cancels_is_known_to_be_cancelled(served: Served) -> None:
    opened = channel(served)
    future = opened.unary_unary("/test.Service/Wait").future(b"")
    await served.service.started.wait()
    future.cancel()
    await served.service.gone.wait()
    opened.close()


async def test_a_deadline_ends_a_call_on_both_sides(served: Served) -> None:
    def call() -> grpc.StatusCode:
        with channel(served) as opened, pytest.raises(grpc.RpcError) as error:
            opened.unary_unary("/test.Service/Wait")(b"", timeout=0.2)
        code: grpc.StatusCode = error.value.code()
        return code

    assert await in_thread(call) == grpc.StatusCode.DEADLINE_EXCEEDED
    await served.service.gone.wait()


async def test_a_deadline_is_kept_by_the_server_too(served: Served) -> None:
    peer = await served.connect()
    peer.call(1, method="Wait", grpc_timeout="50m")
    answer = await peer.answer(1)
    assert answer.status == DEADLINE_EXCEEDED
    await served.service.gone.wait()
    assert await peer.alive()


async def test_an_answer_that_cannot_be_sent_before_the_deadline_is_given_up(served: Served) -> None:
    peer = await served.connect(s4=1)
    served.service.answer = b"y" * 10
    peer.call(1, method="Give", grpc_timeout="50m")
    assert (await peer.answer(1)).reset == Code.CANCEL
    await served.service.unsent.wait()


async def test_streaming_calls_talk_in_both_directions(served: Served) -> None:
    def talk() -> list[bytes]:
        with channel(served) as opened:
            return list(opened.stream_stream("/test.Service/Chat")(iter([b"a", b"bc", b""]), timeout=20))

    assert await in_thread(talk) == [b"A", b"BC", b""]


async def test_the_deadline_of_a_stream_ends_it(served: Served) -> None:
    peer = await served.connect()
    peer.send(peer.headers(1, request_headers("Chat", grpc_timeout="50m")))
    assert (await peer.answer(1)).status == DEADLINE_EXCEEDED
    await served.service.gone.wait()


async def test_a_fault_of_the_broker_is_internal_and_tells_nothing_of_itself(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    peer = await served.connect()
    peer.call(1, method="Fault")
    answer = await peer.answer(1)
    assert answer.status == INTERNAL
    assert b"purpose" not in answer.headers[b"grpc-message"]
    assert "/test.Service/Fault" in caplog.text
    assert "a fault on purpose" in caplog.text


async def test_methods_that_do_not_exist_are_unimplemented(served: Served) -> None:
    peer = await served.connect()
    for stream_id, path in ((1, b"/test.Service/Nothing"), (3, b"/no.Such/Thing"), (5, b"/")):
        headers = [(name, path if name == b":path" else value) for name, value in request_headers()]
        peer.send(peer.headers(stream_id, headers), frame(Kind.DATA, Flag.END_STREAM, stream_id, packed(b"")))
        answer = await peer.answer(stream_id)
        assert (answer.headers[b":status"], answer.status) == (b"200", UNIMPLEMENTED)


async def test_what_is_not_grpc_is_not_served(served: Served) -> None:
    peer = await served.connect()
    for stream_id, change in ((1, {b":method": b"GET"}), (3, {b"content-type": b"application/json"})):
        headers = [(name, change.get(name, value)) for name, value in request_headers()]
        peer.send(peer.headers(stream_id, headers, Flag.END_HEADERS | Flag.END_STREAM))
        assert (await peer.answer(stream_id)).headers == {b":status": b"415"}


async def test_a_compression_that_is_not_known_is_refused_with_those_that_are(served: Served) -> None:
    peer = await served.connect()
    peer.call(1, grpc_encoding="snappy")
    answer = await peer.answer(1)
    assert answer.status == UNIMPLEMENTED
    assert answer.headers[b"grpc-accept-encoding"] == b"identity,deflate,gzip"


FALSE_BODIES = {
    "nothing": (b"", INTERNAL),
    "half a prefix": (b"\0\0", INTERNAL),
    "half a message": (packed(b"whole")[:-1], INTERNAL),
    "two messages": (packed(b"a") + packed(b"b"), INTERNAL),
    "unknown flags": (packed(b"a", flag=9), INTERNAL),
    "compressed as nothing": (packed(b"a", flag=1), UNIMPLEMENTED),
    "longer than any": (struct.pack(">BI", 0, MAX_PAYLOAD_BYTES + 1), INVALID_ARGUMENT),
}


@pytest.mark.parametrize("what", FALSE_BODIES)
async def test_a_body_that_is_not_one_message_is_refused(served: Served, what: str) -> None:
    body, status = FALSE_BODIES[what]
    peer = await served.connect()
    peer.send(peer.headers(1, request_headers()), frame(Kind.DATA, Flag.END_STREAM, 1, body))
    assert (await peer.answer(1)).status == status
    peer.call(3)
    assert (await peer.answer(3)).message == b"hello"


@pytest.mark.parametrize(
    ("compressed", "status"),
    [
        (gzip.compress(b"\0" * (MAX_PAYLOAD_BYTES + 1)), INVALID_ARGUMENT),
        (b"this is no gzip", INTERNAL),
        (gzip.compress(b"cut off")[:-9], INTERNAL),
    ],
    ids=["a bomb", "garbage", "cut off"],
)
async def test_what_cannot_be_decompressed_is_refused(served: Served, compressed: bytes, status: int) -> None:
    peer = await served.connect()
    peer.send(peer.headers(1, request_headers(grpc_encoding="gzip")))
    peer.send(frame(Kind.DATA, Flag.END_STREAM, 1, packed(compressed, flag=1)))
    assert (await peer.answer(1)).status == status


async def test_requests_that_are_begun_and_never_end_are_bounded(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held, "MAX_HELD_BYTES", 100_000)
    peer = await served.connect()
    peer.send(window_update(0, 1_000_000))
    begun = struct.pack(">BI", 0, 90_000) + b"z" * 60_000
    peer.send(peer.headers(1, request_headers()), frame(Kind.DATA, 0, 1, begun))
    peer.send(peer.headers(3, request_headers()), frame(Kind.DATA, 0, 3, begun))
    assert (await peer.answer(3)).status == UNAVAILABLE
    peer.send(frame(Kind.DATA, Flag.END_STREAM, 1, b"z" * 30_000))
    assert (await peer.next_of(Kind.DATA, 1)).payload[5:10] == b"zzzzz"
    peer.call(5)
    assert (await peer.answer(5)).message == b"hello"


async def test_an_error_fits_what_the_peer_reads_of_headers(served: Served) -> None:
    """A client that is sent more takes it for a failure of another kind, which it may retry for ever."""
    peer = await served.connect(s6=400)
    headers = [(n, b"/test.Service/" + b"x" * 500 if n == b":path" else v) for n, v in request_headers()]
    peer.send(peer.headers(1, headers, Flag.END_HEADERS | Flag.END_STREAM))
    answer = await peer.answer(1)
    assert answer.status == UNIMPLEMENTED
    assert b"grpc-message" not in answer.headers


async def test_tasks_that_the_server_cancels_at_its_end_answer_unavailable(served: Served) -> None:
    peer = await served.connect()
    peer.call(1, method="Wait")
    await served.service.started.wait()
    for task in served.tasks:
        task.cancel()
    assert (await peer.answer(1)).status == UNAVAILABLE
    await until(lambda: not served.tasks)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.binary(max_size=300), st.booleans()), max_size=6),
    st.lists(st.integers(1, 200), min_size=1),
)
def test_messages_are_the_same_however_their_bytes_are_cut(
    messages: list[tuple[bytes, bool]], cuts: list[int]
) -> None:
    body = b"".join(packed(zlib.compress(m) if small else m, flag=int(small)) for m, small in messages)
    reader, found = MessageReader(b"deflate"), []
    at = cut = 0
    while at < len(body):
        size = cuts[cut % len(cuts)]
        found += reader.feed(body[at : at + size])
        at, cut = at + size, cut + 1
    packed_messages = [(zlib.compress(m), b"deflate") if small else (m, None) for m, small in messages]
    assert found == packed_messages
    assert not reader.is_within_message


def test_a_length_over_the_limit_is_refused_before_the_message_comes() -> None:
    with pytest.raises(InvalidArgument, match="10485760"):
        MessageReader(b"identity").feed(struct.pack(">BI", 0, MAX_PAYLOAD_BYTES + 1))
