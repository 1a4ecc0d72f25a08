"""The rules of HTTP/2 (RFC 9113) that keep a connection and its peer in step, one by one."""

import asyncio
import struct
from collections.abc import AsyncIterator

import pytest

from broker.net.http2 import connection, half_closed, outgoing
from broker.net.http2.frames import PREFACE, Code, Flag, Kind, frame, header_frames, reset, window_update
from tests.api.grpc.wire import Peer, Served, packed, request_headers, serving, until

END = Flag.END_HEADERS | Flag.END_STREAM


@pytest.fixture(params=["cleartext", "TLS"])
async def served(request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    async with serving(secure=request.param == "TLS") as server:
        yield server


async def test_a_call_is_answered_with_headers_a_message_and_trailers(served: Served) -> None:
    peer = await served.connect()
    peer.call(1)
    answer = await peer.answer(1)
    assert answer.headers[b":status"] == b"200"
    assert answer.headers[b"content-type"] == b"application/grpc"
    assert answer.message == b"hello"
    assert answer.trailers == {b"grpc-status": b"0"}


async def test_the_first_frames_are_settings_and_an_ack_of_the_peers(served: Served) -> None:
    peer = await served.connect()
    first = await peer.read()
    assert (first.kind, first.flags & 1) == (Kind.SETTINGS, 0)
    ack = await peer.read_until(lambda f: f.kind == Kind.SETTINGS)
    assert (ack.flags, ack.payload) == (Flag.ACK, b"")


async def test_a_connection_may_arrive_byte_by_byte(served: Served) -> None:
    peer = await served.connect(greet=False)
    whole = PREFACE + frame(Kind.SETTINGS, 0, 0) + peer.headers(1, request_headers())
    for at in range(len(whole)):
        peer.send(whole[at : at + 1])
        await asyncio.sleep(0)
    for byte in packed(b"slow"):
        peer.send(frame(Kind.DATA, 0, 1, bytes([byte])))
    peer.send(frame(Kind.DATA, Flag.END_STREAM, 1))
    assert (await peer.answer(1)).message == b"slow"


async def test_padding_and_priorities_are_taken_off(served: Served) -> None:
    peer = await served.connect()
    block = peer.encoder.encode(request_headers())
    padded = bytes([3]) + b"\0\0\0\0\x10" + block + b"\0\0\0"
    flags = Flag.PADDED | Flag.PRIORITY | Flag.END_HEADERS
    peer.send(frame(Kind.HEADERS, flags, 1, padded), frame(Kind.PRIORITY, 0, 7, b"\0\0\0\0\x01"))
    body = bytes([9]) + packed(b"padded") + b"\0" * 9
    peer.send(frame(Kind.DATA, Flag.PADDED | Flag.END_STREAM, 1, body))
    assert (await peer.answer(1)).message == b"padded"


async def test_a_header_block_may_go_on_in_other_frames(served: Served) -> None:
    peer = await served.connect()
    block = peer.encoder.encode(request_headers(x_long="y" * 1000))
    peer.send(header_frames(1, block, end_stream=False, max_frame=100))
    peer.send(frame(Kind.DATA, Flag.END_STREAM, 1, packed(b"in parts")))
    assert (await peer.answer(1)).message == b"in parts"


async def test_what_is_not_known_is_ignored(served: Served) -> None:
    peer = await served.connect(s99=7)
    peer.send(frame(0xBE, 0xFF, 0, b"what is this"), frame(Kind.GOAWAY, 0, 0, b"\0" * 8))
    peer.call(1)
    assert (await peer.answer(1)).message == b"hello"


async def test_a_ping_is_answered_with_its_own_payload(served: Served) -> None:
    peer = await served.connect()
    assert await peer.alive()


async def test_many_calls_at_one_time_each_get_their_own_answer(served: Served) -> None:
    peer = await served.connect()
    for number in range(300):
        peer.call(2 * number + 1, b"%d" % number)
    answers = []
    for number in range(300):
        await peer.read_until(lambda f, n=number: f.stream_id == 2 * n + 1 and f.kind == Kind.DATA)  # type: ignore[misc]
        answers.append(peer.frames[-1].payload[5:])
    assert answers == [b"%d" % number for number in range(300)]


# --- flow control ----------------------------------------------------------------------------------------


async def test_a_body_waits_for_the_window_of_its_stream(served: Served) -> None:
    peer = await served.connect(s4=10)
    peer.call(1, b"x" * 20)
    first = await peer.next_of(Kind.DATA, 1)
    assert len(first.payload) == 10
    assert await peer.alive()
    assert [f.stream_id for f in peer.frames].count(1) == 2  # headers, and what the window let through
    peer.send(window_update(1, 8))
    assert len((await peer.next_of(Kind.DATA, 1)).payload) == 8
    peer.send(window_update(1, 100))
    assert len((await peer.next_of(Kind.DATA, 1)).payload) == 7
    assert (await peer.next_of(Kind.HEADERS, 1)).ends_stream


async def test_a_larger_initial_window_lets_waiting_bodies_go_on_and_a_smaller_one_holds_them(
    served: Served,
) -> None:
    peer = await served.connect(s4=0)
    peer.call(1, b"x" * 20)
    await peer.next_of(Kind.HEADERS, 1)
    peer.send(frame(Kind.SETTINGS, 0, 0, struct.pack(">HI", 4, 10)))
    assert len((await peer.next_of(Kind.DATA, 1)).payload) == 10
    peer.send(frame(Kind.SETTINGS, 0, 0, struct.pack(">HI", 4, 5)))  # the stream's window is -5 now
    peer.send(window_update(1, 5))
    assert await peer.alive()
    assert sum(f.kind == Kind.DATA for f in peer.frames) == 1
    peer.send(window_update(1, 15))
    assert len((await peer.next_of(Kind.DATA, 1)).payload) == 15
    assert (await peer.next_of(Kind.HEADERS, 1)).ends_stream


async def test_bodies_share_the_window_of_the_connection_in_turn(served: Served) -> None:
    """None of the streams takes all of a window that opens little by little."""
    peer = await served.connect(s4=1_000_000)
    served.service.answer = b"y" * 100_000
    for stream_id in (1, 3, 5):
        peer.call(stream_id, method="Give")
    received = dict.fromkeys((1, 3, 5), 0)
    while sum(received.values()) < 65_535:
        read = await peer.read_until(lambda f: f.kind == Kind.DATA)
        received[read.stream_id] += len(read.payload)
    assert await peer.alive()
    order = []
    for _ in range(6):
        peer.send(window_update(0, 5_000))
        order.append((await peer.read_until(lambda f: f.kind == Kind.DATA)).stream_id)
    assert {order.count(stream_id) for stream_id in (1, 3, 5)} == {2}


async def test_a_frame_is_no_larger_than_the_peer_takes(served: Served) -> None:
    peer = await served.connect(s4=1_000_000)
    peer.send(window_update(0, 1_000_000))
    served.service.answer = b"y" * 50_000
    peer.call(1, method="Give")
    await peer.read_until(lambda f: f.ends_stream)
    assert max(len(f.payload) for f in peer.frames) == 16_384
    peer.send(frame(Kind.SETTINGS, 0, 0, struct.pack(">HI", 5, 40_000)))
    peer.call(3, method="Give")
    await peer.read_until(lambda f: f.ends_stream)
    assert max(len(f.payload) for f in peer.frames) == 40_000


async def test_a_large_request_is_let_through_as_it_is_read(served: Served) -> None:
    peer = await served.connect(s4=2**31 - 1)
    peer.send(window_update(0, 2**31 - 1 - 65_535))
    message = bytes(range(256)) * 40_000  # 10 MB
    body = packed(message)
    peer.send(peer.headers(1, request_headers()))
    available, at = connection.STREAM_WINDOW, 0

    while at < len(body):
        while not available:
            read = await peer.next_of(Kind.WINDOW_UPDATE, 1)
            available += struct.unpack(">I", read.payload)[0]
        size = min(16_384, available, len(body) - at)
        at += size
        available -= size
        peer.send(frame(Kind.DATA, Flag.END_STREAM if at == len(body) else 0, 1, body[at - size : at]))
        await peer.writer.drain()
    assert (await peer.answer(1)).message == message


async def test_who_sends_more_than_a_streams_window_loses_the_stream(served: Served) -> None:
    """A call whose requests are not taken gives no window back."""
    peer = await served.connect()
    peer.send(peer.headers(1, request_headers("Chat")), frame(Kind.DATA, 0, 1, packed(b"hold")))
    await served.service.started.wait()
    piece = packed(b"z" * 60_000)
    for _ in range(connection.STREAM_WINDOW // len(piece) + 1):
        peer.send(frame(Kind.DATA, 0, 1, piece))
    answer = await peer.answer(1)
    assert answer.reset == Code.FLOW_CONTROL_ERROR
    await served.service.gone.wait()
    assert await peer.alive()


async def test_a_call_that_takes_its_requests_gives_their_window_back(served: Served) -> None:
    peer = await served.connect(s4=2**31 - 1)
    peer.send(window_update(0, 2**31 - 1 - 65_535), peer.headers(1, request_headers("Chat")))
    piece = packed(b"z" * 60_000)
    for _ in range(40):  # more than twice the window
        peer.send(frame(Kind.DATA, 0, 1, piece))
        echoed = 0
        while echoed < len(piece):
            echoed += len((await peer.next_of(Kind.DATA, 1)).payload)
    peer.send(frame(Kind.DATA, Flag.END_STREAM, 1))
    assert (await peer.next_of(Kind.HEADERS, 1)).ends_stream


async def test_what_a_peer_does_not_read_is_not_copied_for_it(served: Served) -> None:
    """An answer is only said to be sent once the socket has had room for it."""
    peer = await served.connect(s4=2**31 - 1)
    peer.send(window_update(0, 2**31 - 1 - 65_535))
    served.service.answer = b"y" * 30_000_000
    peer.call(1, method="Give")
    await served.service.started.wait()
    [server_side] = served.connections
    other = await served.connect()
    for stream_id in (1, 3, 5):
        other.call(stream_id)
        assert (await other.answer(stream_id)).message == b"hello"
    assert server_side._transport.get_write_buffer_size() < 1_000_000
    peer.writer.transport.abort()
    await served.service.unsent.wait()


async def test_a_peer_that_does_not_read_stops_the_bodies_and_not_the_loop(served: Served) -> None:
    peer = await served.connect(s4=2**31 - 1)
    peer.send(window_update(0, 2**31 - 1 - 65_535))
    served.service.answer = b"y" * 10_000_000
    for stream_id in range(1, 20, 2):
        peer.call(stream_id, method="Give")
    other = await served.connect()
    other.call(1)
    assert (await other.answer(1)).message == b"hello"
    for stream_id in range(1, 20, 2):
        await peer.read_until(lambda f, i=stream_id: f.stream_id == i and f.ends_stream)  # type: ignore[misc]
    assert sum(len(f.payload) for f in peer.frames if f.kind == Kind.DATA) == 10 * 10_000_005


# --- cancelling and closing ------------------------------------------------------------------------------


async def test_a_reset_call_knows_that_its_caller_is_gone_and_the_connection_goes_on(served: Served) -> None:
    peer = await served.connect()
    peer.call(1, method="Wait")
    await served.service.started.wait()
    peer.send(reset(1, Code.CANCEL))
    await served.service.gone.wait()
    peer.call(3)
    assert (await peer.answer(3)).message == b"hello"
    assert [f for f in peer.frames if f.stream_id == 1] == []


async def test_a_lost_connection_is_noticed_by_all_of_its_calls(served: Served) -> None:
    peer = await served.connect()
    peer.call(1, method="Wait")
    await served.service.started.wait()
    peer.writer.transport.abort()
    await served.service.gone.wait()


@pytest.mark.parametrize("how", ["reset", "lost"])
async def test_an_answer_that_the_windows_held_back_is_known_to_be_unsent(served: Served, how: str) -> None:
    peer = await served.connect(s4=10)
    served.service.answer = b"y" * 100
    peer.call(1, method="Give")
    await peer.next_of(Kind.DATA, 1)
    assert not served.service.unsent.is_set()
    if how == "reset":
        peer.send(reset(1, Code.CANCEL))
    else:
        peer.writer.transport.abort()
    await served.service.unsent.wait()


async def test_an_answer_that_was_sent_is_not_taken_back(served: Served) -> None:
    peer = await served.connect()
    served.service.answer = b"y" * 100
    peer.call(1, method="Give")
    await peer.answer(1)
    peer.writer.transport.abort()
    await until(lambda: not served.connections)
    assert not served.service.unsent.is_set()


async def test_a_streaming_call_ends_with_its_callers_half_close(served: Served) -> None:
    peer = await served.connect()
    peer.send(peer.headers(1, request_headers("Chat")), frame(Kind.DATA, 0, 1, packed(b"a") + packed(b"b")))
    assert (await peer.next_of(Kind.DATA, 1)).payload == packed(b"A")
    assert (await peer.next_of(Kind.DATA, 1)).payload == packed(b"B")
    peer.send(frame(Kind.DATA, Flag.END_STREAM, 1))
    assert (await peer.next_of(Kind.HEADERS, 1)).ends_stream


@pytest.mark.parametrize("how", ["reset", "lost"])
async def test_a_streaming_call_is_cancelled_when_its_caller_is_gone(served: Served, how: str) -> None:
    peer = await served.connect()
    peer.send(peer.headers(1, request_headers("Chat")), frame(Kind.DATA, 0, 1, packed(b"a")))
    await served.service.started.wait()
    if how == "reset":
        peer.send(reset(1, Code.CANCEL))
    else:
        peer.writer.transport.abort()
    await served.service.gone.wait()
    await until(lambda: not served.tasks)


async def test_shutting_down_lets_calls_end_refuses_new_ones_and_closes(served: Served) -> None:
    peer = await served.connect()
    peer.call(1, method="Wait")
    await served.service.started.wait()
    [server_side] = served.connections
    server_side.shutdown()
    goaway = await peer.next_of(Kind.GOAWAY)
    assert struct.unpack(">II", goaway.payload[:8]) == (1, Code.NO_ERROR)
    peer.call(3)
    refused = await peer.next_of(Kind.RST_STREAM, 3)
    assert struct.unpack(">I", refused.payload)[0] == Code.REFUSED_STREAM
    served.service.proceed.set()
    assert (await peer.answer(1)).message == b"done"
    assert await peer.reader.read() == b""


async def test_shutting_down_ends_streaming_calls_as_unavailable(served: Served) -> None:
    peer = await served.connect()
    peer.send(peer.headers(1, request_headers("Chat")), frame(Kind.DATA, 0, 1, packed(b"a")))
    await served.service.started.wait()
    [server_side] = served.connections
    server_side.shutdown()
    answer = await peer.answer(1)
    assert answer.status == 14
    assert await peer.reader.read() is not None
    assert not served.connections


async def test_an_idle_connection_is_closed_at_once_when_the_server_stops(served: Served) -> None:
    peer = await served.connect()
    assert await peer.alive()
    [server_side] = served.connections
    server_side.shutdown()
    assert await peer.goaway() == (0, Code.NO_ERROR)


async def test_a_peer_that_is_silent_is_asked_and_then_cut_off() -> None:
    async with serving(ping_seconds=0.05) as served:
        peer = await served.connect()
        peer.call(1, method="Wait")
        await peer.read_until(lambda f: f.kind == Kind.PING and not f.flags)
        await served.service.gone.wait()
        assert not served.connections


async def test_a_peer_that_answers_pings_stays() -> None:
    async with serving(ping_seconds=0.05) as served:
        peer = await served.connect()
        peer.call(1, method="Wait")
        for _ in range(4):
            ping = await peer.read_until(lambda f: f.kind == Kind.PING and not f.flags)
            peer.send(frame(Kind.PING, Flag.ACK, 0, ping.payload))
        served.service.proceed.set()
        assert (await peer.answer(1)).message == b"done"


# --- peers that break the rules --------------------------------------------------------------------------


def _begun(peer: Peer) -> bytes:
    return peer.headers(1, request_headers("Wait"))


CONNECTION_FAULTS = {
    "a frame before SETTINGS": (lambda p: PREFACE + frame(Kind.PING, 0, 0, b"\0" * 8), Code.PROTOCOL_ERROR),
    "not the preface": (lambda p: b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", Code.PROTOCOL_ERROR),
    "a huge frame": (lambda p: struct.pack(">IBI", 70_000 << 8, 0, 1), Code.FRAME_SIZE_ERROR),
    "data of an idle stream": (lambda p: frame(Kind.DATA, 0, 1, b"x"), Code.PROTOCOL_ERROR),
    "data of the connection": (lambda p: frame(Kind.DATA, 0, 0, b"x"), Code.PROTOCOL_ERROR),
    "a reset of an idle stream": (lambda p: reset(1, Code.CANCEL), Code.PROTOCOL_ERROR),
    "a window of an idle stream": (lambda p: window_update(1, 1), Code.PROTOCOL_ERROR),
    "a short reset": (lambda p: _begun(p) + frame(Kind.RST_STREAM, 0, 1, b"x"), Code.FRAME_SIZE_ERROR),
    "a server's stream id": (lambda p: p.headers(2, request_headers()), Code.PROTOCOL_ERROR),
    "headers of the connection": (lambda p: p.headers(0, request_headers()), Code.PROTOCOL_ERROR),
    "odd settings": (lambda p: frame(Kind.SETTINGS, 0, 0, b"12345"), Code.FRAME_SIZE_ERROR),
    "settings of a stream": (lambda p: frame(Kind.SETTINGS, 0, 1, b""), Code.PROTOCOL_ERROR),
    "a full ack of settings": (lambda p: frame(Kind.SETTINGS, 1, 0, b"123456"), Code.FRAME_SIZE_ERROR),
    "a huge initial window": (
        lambda p: frame(Kind.SETTINGS, 0, 0, struct.pack(">HI", 4, 2**31)),
        Code.FLOW_CONTROL_ERROR,
    ),
    "a tiny frame size": (lambda p: frame(Kind.SETTINGS, 0, 0, struct.pack(">HI", 5, 100)), Code.PROTOCOL_ERROR),
    "push of 2": (lambda p: frame(Kind.SETTINGS, 0, 0, struct.pack(">HI", 2, 2)), Code.PROTOCOL_ERROR),
    "a push": (lambda p: _begun(p) + frame(Kind.PUSH_PROMISE, 4, 1, b"\0\0\0\2"), Code.PROTOCOL_ERROR),
    "a short ping": (lambda p: frame(Kind.PING, 0, 0, b"short"), Code.FRAME_SIZE_ERROR),
    "a ping of a stream": (lambda p: frame(Kind.PING, 0, 1, b"\0" * 8), Code.PROTOCOL_ERROR),
    "a goaway of a stream": (lambda p: frame(Kind.GOAWAY, 0, 1, b"\0" * 8), Code.PROTOCOL_ERROR),
    "no increment": (lambda p: window_update(0, 0), Code.PROTOCOL_ERROR),
    "too much window": (lambda p: window_update(0, 2**31 - 1), Code.FLOW_CONTROL_ERROR),
    "a short window update": (lambda p: frame(Kind.WINDOW_UPDATE, 0, 0, b"\1"), Code.FRAME_SIZE_ERROR),
    "padding past the end": (
        lambda p: _begun(p) + frame(Kind.DATA, Flag.PADDED, 1, b"\x05abc"),
        Code.PROTOCOL_ERROR,
    ),
    "no room for padding": (lambda p: _begun(p) + frame(Kind.DATA, Flag.PADDED, 1, b""), Code.PROTOCOL_ERROR),
    "a lone continuation": (lambda p: frame(Kind.CONTINUATION, 4, 1, b""), Code.PROTOCOL_ERROR),
    "an interrupted header block": (
        lambda p: frame(Kind.HEADERS, 0, 1, b"\x82") + frame(Kind.PING, 0, 0, b"\0" * 8),
        Code.PROTOCOL_ERROR,
    ),
    "a header block without end": (
        lambda p: frame(Kind.HEADERS, 0, 1, b"") + frame(Kind.CONTINUATION, 0, 1, b"") * 100,
        Code.ENHANCE_YOUR_CALM,
    ),
    "a large header block": (
        lambda p: frame(Kind.HEADERS, 0, 1, b"") + frame(Kind.CONTINUATION, 0, 1, b"\0" * 60_000) * 2,
        Code.ENHANCE_YOUR_CALM,
    ),
    "an index of no header": (lambda p: frame(Kind.HEADERS, END, 1, b"\xff\xff\xff\x7f"), Code.COMPRESSION_ERROR),
    "headers that grow": (
        # one entry of 4,000 bytes in the table, and then a reference of one byte to it, again and again
        lambda p: frame(Kind.HEADERS, END, 1, b"\x40\x01x" + b"\x7f\xa1\x1e" + b"a" * 4000 + b"\xbe" * 50),
        Code.COMPRESSION_ERROR,
    ),
    "a truncated header": (lambda p: frame(Kind.HEADERS, END, 1, b"\x00\x7f"), Code.COMPRESSION_ERROR),
}


@pytest.mark.parametrize("fault", CONNECTION_FAULTS)
async def test_a_fault_of_the_connection_ends_it_with_its_code(served: Served, fault: str) -> None:
    make, code = CONNECTION_FAULTS[fault]
    greeted = "preface" not in fault and "SETTINGS" not in fault
    peer = await served.connect(greet=greeted)
    peer.send(make(peer))
    assert (await peer.goaway())[1] == code
    await until(lambda: not served.connections)


async def test_more_than_the_connections_window_ends_it(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CONNECTION_WINDOW", 100)
    peer = await served.connect()
    peer.send(_begun(peer), frame(Kind.DATA, 0, 1, b"\0" * 101))
    assert (await peer.goaway())[1] == Code.FLOW_CONTROL_ERROR


MALFORMED = {
    "no path": [(b":method", b"POST"), (b":scheme", b"http")],
    "two paths": [*request_headers(), (b":path", b"/")],
    "a late pseudo-header": [(b":method", b"POST"), (b":scheme", b"http"), (b"te", b"trailers"), (b":path", b"/")],
    "an unknown pseudo-header": [(b":colour", b"red"), *request_headers()],
    "a response's header": [(b":status", b"200"), *request_headers()],
    "an upper-case name": [*request_headers(), (b"X-Loud", b"1")],
    "a connection header": [*request_headers(), (b"connection", b"close")],
    "te of something": [*request_headers(), (b"te", b"gzip")],
}


@pytest.mark.parametrize("headers", MALFORMED.values(), ids=MALFORMED)
async def test_a_malformed_request_is_reset_and_the_connection_goes_on(
    served: Served, headers: list[tuple[bytes, bytes]]
) -> None:
    peer = await served.connect()
    peer.send(peer.headers(1, headers, END))
    answer = await peer.answer(1)
    assert answer.reset == Code.PROTOCOL_ERROR
    peer.call(3)
    assert (await peer.answer(3)).message == b"hello"


async def test_what_follows_the_end_of_a_request_is_a_fault_of_its_stream(served: Served) -> None:
    peer = await served.connect()
    peer.call(1, method="Wait")
    peer.send(frame(Kind.DATA, 0, 1, b"more"))
    assert (await peer.answer(1)).reset == Code.STREAM_CLOSED
    await until(lambda: not served.tasks)  # the call has ended, whether or not its handler had begun
    peer.call(3, method="Wait")
    peer.send(peer.headers(3, request_headers()))
    assert (await peer.answer(3)).reset == Code.STREAM_CLOSED


async def test_a_stream_whose_window_is_made_too_large_is_reset(served: Served) -> None:
    peer = await served.connect()
    peer.send(_begun(peer), window_update(1, 2**31 - 1))
    assert (await peer.answer(1)).reset == Code.FLOW_CONTROL_ERROR
    peer.send(peer.headers(3, request_headers("Wait")), window_update(3, 0))
    assert (await peer.answer(3)).reset == Code.PROTOCOL_ERROR


async def _answered_early(served: Served) -> Peer:
    """The peer of a stream 1 that was answered before the end of its request."""
    peer = await served.connect()
    peer.send(peer.headers(1, request_headers("Nothing")))
    assert (await peer.answer(1)).status == 12
    return peer


async def test_what_arrives_late_for_a_stream_that_was_answered_is_ignored() -> None:
    """The peer is asked to stop, which it has not read yet when it sends more."""
    async with serving(half_closed_seconds=0.01) as served:
        peer = await _answered_early(served)
        stop = await peer.next_of(Kind.RST_STREAM, 1)
        assert struct.unpack(">I", stop.payload)[0] == Code.NO_ERROR
        late = frame(Kind.DATA, 0, 1, b"x" * 100) + peer.headers(1, [(b"x", b"y")], END) + window_update(1, 9)
        peer.send(late, reset(1, Code.CANCEL))
        peer.call(3)
        assert (await peer.answer(3)).message == b"hello"


@pytest.mark.parametrize("how", ["data", "trailers", "reset"])
async def test_a_peer_that_ends_its_side_after_the_answer_is_sent_no_reset(how: str) -> None:
    """A proxy may discard an answer that a reset follows at once:
    https://github.com/haproxy/haproxy/issues/1219.
    """
    async with serving(half_closed_seconds=1_000) as served:
        peer = await _answered_early(served)
        assert await peer.alive()
        endings = {
            "data": frame(Kind.DATA, Flag.END_STREAM, 1),
            "trailers": peer.headers(1, [(b"x", b"y")], END),
            "reset": reset(1, Code.NO_ERROR),
        }
        peer.send(endings[how])
        assert await peer.alive()
        [server_side] = served.connections
        server_side.shutdown()
        assert await peer.goaway() == (1, Code.NO_ERROR)
        assert await peer.reader.read() == b""  # nothing is waited for
        assert Kind.RST_STREAM not in {read.kind for read in peer.frames}


async def test_beyond_a_number_of_answered_streams_each_is_reset_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_closed, "MAX_WAITING", 1)
    async with serving(half_closed_seconds=1_000) as served:
        peer = await _answered_early(served)
        peer.send(peer.headers(3, request_headers("Nothing")))
        await peer.next_of(Kind.RST_STREAM, 3)
        assert not [read for read in peer.frames if (read.kind, read.stream_id) == (Kind.RST_STREAM, 1)]


async def test_shutting_down_waits_for_peers_to_end_their_side_of_answered_streams() -> None:
    """The end of the connection would discard an answer as a reset does."""
    async with serving(half_closed_seconds=1_000) as served:
        peer = await served.connect()
        peer.send(peer.headers(1, request_headers("Chat")), frame(Kind.DATA, 0, 1, packed(b"a")))
        await served.service.started.wait()
        [server_side] = served.connections
        server_side.shutdown()
        assert (await peer.answer(1)).status == 14
        assert await peer.alive()
        peer.send(frame(Kind.DATA, Flag.END_STREAM, 1))
        assert await peer.reader.read() == b""


async def test_there_are_no_more_streams_than_were_allowed(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_STREAMS", 2)
    peer = await served.connect()
    for stream_id in (1, 3, 5):
        peer.call(stream_id, method="Wait")
    assert (await peer.answer(5)).reset == Code.REFUSED_STREAM
    served.service.proceed.set()
    await until(lambda: not served.tasks)
    peer.call(7)
    assert (await peer.answer(7)).message == b"hello"


async def test_a_peer_that_asks_without_end_and_does_not_read_is_cut_off(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    if served.secure:
        pytest.skip("a client of asyncio's TLS does not hear that its connection has ended while it floods")
    monkeypatch.setattr(outgoing, "MAX_UNREAD_REPLY_BYTES", 100_000)
    peer = await served.connect()
    pings = frame(Kind.PING, 0, 0, b"\0" * 8) * 1_000
    with pytest.raises(ConnectionError):
        await peer.flood(pings)
    await until(lambda: not served.connections)


async def test_resetting_calls_as_fast_as_they_are_made_leaves_nothing_behind(served: Served) -> None:
    peer = await served.connect()
    for number in range(3_000):
        stream_id = 2 * number + 1
        peer.call(stream_id, method="Wait")
        peer.send(reset(stream_id, Code.CANCEL))
    assert await peer.alive()
    await until(lambda: not served.tasks)
    peer.call(6_001)
    assert (await peer.answer(6_001)).message == b"hello"


# --- header compression ----------------------------------------------------------------------------------


async def test_a_smaller_header_table_is_acknowledged_before_the_next_header(served: Served) -> None:
    """RFC 7541, section 4.2; decoders that are strict refuse what follows otherwise."""
    peer = await served.connect(s1=0)
    peer.decoder.max_allowed_table_size = 0
    for stream_id in (1, 3):
        peer.call(stream_id)
        assert (await peer.answer(stream_id)).message == b"hello"
    blocks = [f.payload for f in peer.frames if f.kind == Kind.HEADERS]
    assert [block[:1] == b"\x20" for block in blocks] == [True, False, False, False]


async def test_remembered_header_blocks_are_forgotten_when_the_table_changes(served: Served) -> None:
    """The same bytes mean something else once an entry has been added before those that they refer to."""
    peer = await served.connect()
    echo, nothing = request_headers("Echo"), request_headers("Nothing")
    answers = []
    for number, headers in enumerate([echo, echo, echo, nothing, nothing, echo, nothing, echo]):
        stream_id = 2 * number + 1
        peer.send(peer.headers(stream_id, headers))
        peer.send(frame(Kind.DATA, Flag.END_STREAM, stream_id, packed(b"x")))
        answers.append((await peer.answer(stream_id)).status)
    assert answers == [0, 0, 0, 12, 12, 0, 12, 0]


async def test_large_trailers_go_on_in_other_frames(served: Served) -> None:
    peer = await served.connect()
    path = "Nothing" + "é" * 3_000
    headers = [(n, b"/test.Service/" + path.encode() if n == b":path" else v) for n, v in request_headers()]
    peer.send(peer.headers(1, headers, END))
    answer = await peer.answer(1)
    assert answer.status == 12
    assert len(answer.headers[b"grpc-message"]) > 16_384
    assert any(f.kind == Kind.CONTINUATION for f in peer.frames)
