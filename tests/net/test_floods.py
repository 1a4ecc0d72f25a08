"""Peers that send what is allowed without end: they are told to calm down, and the others are served meanwhile."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from typing import Any

import pytest

from broker.api.grpc import server
from broker.api.limits.request_memory import RequestMemory
from broker.net.http2 import connection, outgoing, patience, rotation
from broker.net.http2.frames import PREFACE, Code, Flag, Kind, frame, reset, window_update
from broker.net.http2.headers import HeaderDecoder, encode_headers
from tests.api.grpc.wire import Peer, Served, Service, make_api, packed, request_headers, serving, until
from tests.fixtures.broker import PATIENCE_SECONDS
from tests.net.test_http2_fuzz import Sink

END = Flag.END_HEADERS | Flag.END_STREAM


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with serving() as server:
        yield server


def _rapid_resets(peer: Peer, first: int) -> bytes:
    made = []
    for stream_id in range(first, first + 400, 2):
        body = frame(Kind.DATA, Flag.END_STREAM, stream_id, packed(b"x"))
        made.append(peer.headers(stream_id, request_headers("Wait")) + body + reset(stream_id, Code.CANCEL))
    return b"".join(made)


def _faulty_calls(peer: Peer, first: int) -> bytes:
    return b"".join(
        peer.headers(stream_id, [(b":method", b"POST")], END) for stream_id in range(first, first + 400, 2)
    )


def _windows(initial: int) -> bytes:
    return frame(Kind.SETTINGS, 0, 0, struct.pack(">HI", 4, initial))


FLOODS: dict[str, Callable[[Peer, int], bytes]] = {
    "settings": lambda p, _: frame(Kind.SETTINGS, 0, 0) * 200,
    "settings that move all windows": lambda p, _: (_windows(1_000) + _windows(2_000)) * 100,
    "settings with many of them": lambda p, _: frame(Kind.SETTINGS, 0, 0, struct.pack(">HI", 99, 1) * 10_000),
    "acks of settings": lambda p, _: frame(Kind.SETTINGS, 1, 0) * 200,
    "pings": lambda p, _: frame(Kind.PING, 0, 0, b"\0" * 8) * 200,
    "priorities": lambda p, _: frame(Kind.PRIORITY, 0, 9, b"\0" * 5) * 200,
    "windows of the connection": lambda p, _: window_update(0, 1) * 200,
    "windows of a stream": lambda p, _: window_update(1, 1) * 200,
    "empty data": lambda p, _: frame(Kind.DATA, 0, 1) * 200,
    "data that is nothing but padding": lambda p, _: frame(Kind.DATA, Flag.PADDED, 1, b"\x07" + b"\0" * 7) * 200,
    "data of an ended stream": lambda p, _: reset(1, Code.CANCEL) + frame(Kind.DATA, 0, 1, b"x") * 200,
    "unknown frames": lambda p, _: frame(0xBE, 0, 0, b"?") * 200,
    "goaways": lambda p, _: frame(Kind.GOAWAY, 0, 0, b"\0" * 8) * 200,
    "resets": _rapid_resets,
    "faulty calls": _faulty_calls,
}


@pytest.mark.parametrize("flood", FLOODS)
async def test_a_flood_ends_its_connection_and_nobody_elses(
    served: Served, flood: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "EARNED_EACH_SECOND", 0)  # a busy machine may send no more than time gives back
    good, flooder = await served.connect(), await served.connect()
    flooder.send(flooder.headers(1, request_headers("Wait")))
    sending = asyncio.create_task(_send_without_end(flooder, FLOODS[flood]))
    ended = asyncio.create_task(flooder.goaway())
    calls = 0
    while not ended.done() or calls < 3:
        stream_id = 2 * calls + 1
        good.call(stream_id)
        assert (await good.answer(stream_id)).message == b"hello"
        calls += 1
    assert (await ended)[1] == Code.ENHANCE_YOUR_CALM
    sending.cancel()
    with contextlib.suppress(asyncio.CancelledError, ConnectionError):
        await sending
    await until(lambda: len(served.connections) == 1)
    served.service.proceed.set()
    await until(lambda: not served.tasks)


async def _send_without_end(peer: Peer, make: Callable[[Peer, int], bytes]) -> None:
    first = 3
    while True:
        peer.send(make(peer, first))
        first += 400
        await peer.writer.drain()
        await asyncio.sleep(0)


def test_patience_comes_back_with_time_and_with_answers() -> None:
    now = 0.0
    left = patience.Patience(lambda: now)
    for second in range(100):
        now = float(second)
        left.spend(patience.EARNED_EACH_SECOND)
    for _ in range(100):
        left.answered += 1_000
        left.spend(1_000 * patience.EARNED_BY_ANSWER)
    now = 1_000_000.0
    left.spend(patience.PATIENCE)  # what is earned beyond that is not kept
    with pytest.raises(connection.ConnectionFault):
        left.spend(patience.PATIENCE)


async def test_a_client_that_pings_and_widens_windows_as_it_reads_is_welcome(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Google's clients do: two windows for each answer, and a ping to measure the round trip."""
    monkeypatch.setattr(patience, "EARNED_EACH_SECOND", 0)
    monkeypatch.setattr(patience, "PATIENCE", 1_000)
    peer = await served.connect()
    for number in range(1_500):
        stream_id = 2 * number + 1
        peer.call(stream_id)
        peer.send(window_update(0, 15), frame(Kind.PING, 0, 0, b"how far?"), window_update(0, 1))
        assert (await peer.answer(stream_id)).message == b"hello"


async def test_slivers_of_an_answer_earn_nothing(served: Served) -> None:
    served.service.answer = b"x" * 500_000
    peer = await served.connect(s4=0)
    peer.call(1, method="Give")
    sending = asyncio.create_task(_send_without_end(peer, lambda p, _: window_update(1, 1) * 200))
    assert (await peer.goaway())[1] == Code.ENHANCE_YOUR_CALM
    sending.cancel()
    with contextlib.suppress(asyncio.CancelledError, ConnectionError):
        await sending


# --- turns -----------------------------------------------------------------------------------------------


class Socket(Sink):
    """Knows whether more is read from it."""

    def __init__(self) -> None:
        super().__init__()
        self.paused = 0

    def pause_reading(self) -> None:
        self.paused += 1


async def test_much_that_comes_at_once_is_served_in_turns_with_the_others() -> None:
    socket, connections, tasks = Socket(), set[Any](), set[Any]()
    protocol = make_api(Service()).connection(connections, tasks)
    protocol.connection_made(socket)
    pings = 3 * rotation.TURN
    protocol.data_received(PREFACE + frame(4, 0, 0) + frame(Kind.PING, 0, 0, b"01234567") * pings)
    turns = []
    for _ in range(12):
        await asyncio.sleep(0)  # the others' turn
        turns.append(socket.written.count(b"01234567"))
    assert max(after - before for before, after in pairwise([0, *turns])) <= rotation.TURN
    assert turns[-1] == pings
    assert socket.paused >= 2
    protocol.connection_lost(None)


async def test_of_many_connections_with_much_to_do_one_has_its_turn_and_who_sends_little_waits_for_none() -> None:
    """All of them had a turn in each turn of the loop: with 21 connections a neighbour waited for 21 turns."""
    api, flood = make_api(Service()), 2 * rotation.TURN
    sockets = [Socket() for _ in range(6)]
    protocols = [api.connection(set[Any](), set[Any]()) for _ in sockets]
    for socket, protocol in zip(sockets, protocols, strict=True):
        protocol.connection_made(socket)
        protocol.data_received(PREFACE + frame(4, 0, 0) + frame(Kind.PING, 0, 0, b"01234567") * flood)
    small = Socket()
    neighbour = api.connection(set[Any](), set[Any]())
    neighbour.connection_made(small)
    neighbour.data_received(PREFACE + frame(4, 0, 0) + frame(Kind.PING, 0, 0, b"01234567"))
    await asyncio.sleep(0)
    assert b"01234567" in small.written
    served = [[socket.written.count(b"01234567") for socket in sockets]]
    while sum(served[-1]) < flood * len(sockets):
        await asyncio.sleep(0)
        served.append([socket.written.count(b"01234567") for socket in sockets])
        gained = [after - before for before, after in zip(*served[-2:], strict=True)]
        assert sum(gained) <= rotation.TURN
        assert sum(more > 0 for more in gained) <= 1
        assert max(served[-1]) - min(served[-1]) <= rotation.TURN + rotation.SHORT_TURN
    for protocol in (*protocols, neighbour):
        protocol.connection_lost(None)


async def test_a_large_header_block_is_a_turn_of_its_own() -> None:
    socket = Socket()
    protocol = make_api(Service()).connection(set[Any](), set[Any]())
    protocol.connection_made(socket)
    block = encode_headers((b"x", b"y" * 60_000))
    protocol.data_received(PREFACE + frame(4, 0, 0) + b"".join(frame(1, END, n, block) for n in (1, 3, 5)))
    refusals = [0]
    while refusals[-1] < 3:
        await asyncio.sleep(0)
        refusals.append(sum(reset(n, Code.PROTOCOL_ERROR) in socket.written for n in (1, 3, 5)))
    assert max(after - before for before, after in pairwise(refusals)) == 1
    protocol.connection_lost(None)


# --- memory ----------------------------------------------------------------------------------------------


def test_large_header_blocks_are_not_remembered() -> None:
    decoder = HeaderDecoder()
    pseudo = ((b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/"))
    small = encode_headers(*pseudo)
    assert decoder.decode(small) is decoder.decode(small)
    large = encode_headers(*pseudo, (b"x", b"y" * 10_000))
    assert decoder.decode(large) is not decoder.decode(large)


def test_a_header_block_that_resizes_the_table_again_and_again_is_refused() -> None:
    pseudo = encode_headers((b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/"))
    decoder = HeaderDecoder()
    assert not decoder.decode(b"\x20\x3f\xe1\x1f" + pseudo).is_malformed
    for resizes in (b"\x20" * 3, b"\x20" * 60_000, b"\x3f\xe1\x1f" * 3, b"\x20\x3f\xe1\x1f\x20"):
        with pytest.raises(connection.ConnectionFault) as refused:
            HeaderDecoder().decode(resizes + pseudo)
        assert refused.value.code == Code.COMPRESSION_ERROR


def test_what_a_block_says_is_forgotten_when_a_later_one_resizes_the_table() -> None:
    """Without that the old meaning of an entry would outlive it."""
    decoder = HeaderDecoder()
    added = b"\x83\x86\x84\x40\x01x\x01y"  # POST, http, / and x: y, which goes into the table
    assert decoder.decode(added).fields[b"x"] == b"y"
    again = b"\x83\x86\x84\xbe"
    assert decoder.decode(again).fields[b"x"] == b"y"
    decoder.decode(b"\x20" + b"\x83\x86\x84")
    with pytest.raises(connection.ConnectionFault):
        decoder.decode(again)


# --- silence ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [PREFACE[:10], PREFACE, PREFACE + frame(4, 0, 0)[:5]])
async def test_who_does_not_begin_is_cut_off_even_if_it_goes_on_to_send(sent: bytes) -> None:
    async with serving(ping_seconds=0.1) as served:
        peer = await served.connect(greet=False)
        for at in range(len(sent)):
            peer.send(sent[at : at + 1])
            await asyncio.sleep(0.001)
        async with asyncio.timeout(PATIENCE_SECONDS):
            with contextlib.suppress(ConnectionError):
                while await peer.reader.read(1_000):
                    pass
        await until(lambda: not served.connections)


async def _talk(peer: Peer) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            peer.send(frame(Kind.PING, Flag.ACK, 0, b"\0" * 8))
            await peer.writer.drain()
            await asyncio.sleep(0.01)


async def test_a_peer_that_takes_nothing_of_an_answer_is_cut_off_though_it_talks(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outgoing, "MAX_FULL_SECONDS", 0.2)
    served.service.answer = b"x" * 9_000_000
    peer = await served.connect(s4=10_000_000)
    peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
    peer.send(window_update(0, 10_000_000))
    peer.call(1, method="Give")
    with pytest.raises(ConnectionError):
        await _talk(peer)
    await until(lambda: not served.connections)
    assert served.service.answers.held == 0
    assert served.service.unsent.is_set()


async def test_settings_that_free_a_byte_of_each_answer_cost_as_much_as_the_frames_that_they_ask_for(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "EARNED_EACH_SECOND", 0)
    monkeypatch.setattr(patience, "PATIENCE", 10_000)
    served.service.answer = b"x" * 100
    peer = await served.connect(s4=0)
    for stream_id in range(1, 1_001, 2):
        peer.call(stream_id, method="Give")
        await peer.next_of(Kind.HEADERS, stream_id)
    for window in range(1, 40):  # some 50 each by themselves, and 500 for the streams
        peer.send(_windows(window))
    assert (await peer.goaway())[1] == Code.ENHANCE_YOUR_CALM


async def test_streams_are_refused_once_the_headers_of_an_address_take_its_share_of_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A header of 4 KB, which the table of the connection keeps, costs a byte each time that it is repeated."""
    monkeypatch.setattr(server, "LEAST_STREAM_BYTES", 0)
    service = Service()
    service.requests = RequestMemory(1_000_000)
    async with serving(service=service) as served:
        peer = await served.connect()
        long = [(b"x-long", b"y" * 3_900)]
        peer.send(peer.headers(1, request_headers("Wait") + long))
        block = encode_headers(*request_headers("Wait")) + b"\xbe" * 15
        for stream_id in range(3, 103, 2):
            peer.send(frame(Kind.HEADERS, Flag.END_HEADERS, stream_id, block))
        refused = await peer.read_until(lambda f: f.kind == Kind.RST_STREAM)
        assert struct.unpack(">I", refused.payload) == (Code.REFUSED_STREAM,)
        held = (refused.stream_id - 1) // 2
        assert 64_000 * held < 1_000_000
        for stream_id in range(1, 103, 2):
            peer.send(reset(stream_id, Code.CANCEL))
        assert await peer.alive()
        other = await served.connect()
        other.call(1)
        assert (await other.answer(1)).message == b"hello"
