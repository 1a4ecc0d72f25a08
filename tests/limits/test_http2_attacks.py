"""HTTP/2 connections that flood, break rules, read nothing or say nothing: good clients are served meanwhile."""

import asyncio
import contextlib
import random
import struct
from collections.abc import AsyncIterator, Callable

import hpack
import httpx
import pytest

from broker.api.generated import messages
from broker.net.http2.frames import PREFACE, Code, Flag, Kind, frame, reset, settings, window_update
from tests.api.grpc.wire import Peer, packed
from tests.fixtures.broker import NO_TLS, PATIENCE_SECONDS, BrokerProcess, Rest, eventually
from tests.limits.conftest import MEGABYTE, good_client, rss
from tests.limits.crowd import Crowd, call_headers, connect
from tests.net.test_floods import FLOODS

pytestmark = [pytest.mark.slow, pytest.mark.ci]

ATTACK_SECONDS = 3.0
CAPACITY = 300 * MEGABYTE  # what the process may grow by in any of these


@pytest.fixture
async def rest(broker: BrokerProcess, project: str) -> AsyncIterator[Rest]:
    async with httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS) as client:
        yield Rest(client, project)


def _over() -> Callable[[], bool]:
    loop = asyncio.get_running_loop()
    ends = loop.time() + ATTACK_SECONDS
    return lambda: loop.time() > ends


async def _read_all(peer: Peer) -> list[int]:
    """The codes of the GOAWAYs that came, to the end of the connection."""
    codes = []
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            read = await peer.read()
            peer.frames.clear()
            if read.kind == Kind.GOAWAY:
                codes.append(struct.unpack(">I", read.payload[4:8])[0])
    return codes


async def _flood(url: str, make: Callable[[Peer, int], bytes]) -> list[int]:
    """On one connection after the other; what the broker said of each that it ended."""
    over, codes = _over(), list[int]()
    while not over():
        peer = await connect(url)
        peer.send(peer.headers(1, call_headers("Subscriber/StreamingPull")))
        reading, first = asyncio.create_task(_read_all(peer)), 3
        with contextlib.suppress(ConnectionError):
            while not (over() or reading.done()):
                peer.send(make(peer, first))
                first += 400
                await peer.writer.drain()
                await asyncio.sleep(0)
        peer.writer.close()
        async with asyncio.timeout(PATIENCE_SECONDS):
            codes += await reading
    return codes


async def test_floods_of_all_kinds_at_once_end_and_good_clients_are_served(broker: BrokerProcess) -> None:
    before = rss(broker)
    async with good_client(broker):
        codes = await asyncio.gather(*[_flood(broker.url, make) for make in FLOODS.values()])
    assert {code for of_one in codes for code in of_one} == {Code.ENHANCE_YOUR_CALM}
    assert rss(broker) - before < CAPACITY


async def _flood_unread(url: str, frames: bytes) -> None:
    """Without reading what comes back, until the broker ends it."""
    peer = await connect(url)
    peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                peer.send(frames)
                await peer.writer.drain()
                await asyncio.sleep(0)
    peer.writer.transport.abort()


async def test_floods_of_those_who_do_not_read_end_too(broker: BrokerProcess) -> None:
    before = rss(broker)
    pings = frame(Kind.PING, 0, 0, b"\0" * 8) * 500
    async with good_client(broker):
        await asyncio.gather(*[_flood_unread(broker.url, pings) for _ in range(10)])
        await asyncio.gather(*[_flood_unread(broker.url, frame(Kind.SETTINGS, 0, 0) * 500) for _ in range(10)])
    assert rss(broker) - before < CAPACITY


async def test_header_blocks_that_are_hard_to_read_do_not_hold_up_the_others(broker: BrokerProcess) -> None:
    blocks = {
        "resizes": b"\x20" * 60_000,
        "a bomb": b"\x40\x01x\x7f\xa1\x1e" + b"a" * 4_000 + b"\xbe" * 50_000,
        "many headers": b"\x00\x01a\x01b" * 1_500,
        "compressed": b"\x00\x01a\xff" + b"\x81\xff\x01" + b"\x1f" * 32_000,  # not quite: its padding is wrong
    }

    async def send(block: bytes) -> None:
        over = _over()
        while not over():
            peer = await connect(broker.url)
            with contextlib.suppress(ConnectionError):
                for stream_id in range(1, 41, 2):
                    peer.send(frame(Kind.HEADERS, Flag.END_HEADERS | Flag.END_STREAM, stream_id, block))
                    await peer.writer.drain()
            peer.writer.close()
            await asyncio.sleep(0.01)

    before = rss(broker)
    async with good_client(broker):
        await asyncio.gather(*[send(block) for block in blocks.values()])
    assert rss(broker) - before < CAPACITY


@pytest.mark.slow
async def test_a_thousand_idle_connections_cost_little_and_leave_nothing(broker: BrokerProcess) -> None:
    before = rss(broker)
    [worker] = broker.workers()
    async with good_client(broker):
        peers = [await connect(broker.url) for _ in range(1_000)]
        assert all(await asyncio.gather(*[peer.alive() for peer in peers]))
        assert rss(broker) - before < CAPACITY
        for peer in peers:
            peer.writer.close()
        await eventually(lambda: len(worker.net_connections()) < 100)


# --- mutated conversations -----------------------------------------------------------------------------------


def _conversation(rest: Rest) -> list[bytes]:
    """What a client sends: frames of a publish, a pull, acks, a stream, a cancelled call, a ping."""
    topic, subscription = rest.topic(), rest.subscription()
    encoder = hpack.Encoder()
    calls = {
        "Publisher/Publish": messages.PublishRequest(
            topic=topic, messages=[{"data": b"x", "attributes": {"a": "b"}}]
        ),
        "Subscriber/Pull": messages.PullRequest(subscription=subscription, max_messages=5, return_immediately=True),
        "Subscriber/Acknowledge": messages.AcknowledgeRequest(subscription=subscription, ack_ids=["AAAA", "zz/z"]),
        "Subscriber/ModifyAckDeadline": messages.ModifyAckDeadlineRequest(
            subscription=subscription, ack_ids=["AAAA"], ack_deadline_seconds=20
        ),
        "Subscriber/GetSubscription": messages.GetSubscriptionRequest(subscription=subscription),
        "Subscriber/StreamingPull": messages.StreamingPullRequest(
            subscription=subscription, stream_ack_deadline_seconds=30, ack_ids=[]
        ),
    }
    sent = [PREFACE, settings({}), window_update(0, 100_000)]
    for number, (method, request) in enumerate(calls.items()):
        stream_id = 2 * number + 1
        block = encoder.encode(call_headers(method))
        sent.append(frame(Kind.HEADERS, Flag.END_HEADERS, stream_id, block))
        end = 0 if method.endswith("StreamingPull") else Flag.END_STREAM
        sent.append(frame(Kind.DATA, end, stream_id, packed(request.SerializeToString())))
    return [*sent, frame(Kind.PING, 0, 0, b"01234567"), reset(11, Code.CANCEL), frame(Kind.SETTINGS, 1, 0)]


def _mutated(frames: list[bytes], dice: random.Random) -> bytes:
    """Frames are dropped, doubled and moved; bytes are changed, put in and cut out."""
    frames = list(frames)
    for _ in range(dice.randint(0, 3)):
        at = dice.randrange(1, len(frames))
        match dice.randrange(3):
            case 0:
                del frames[at]
            case 1:
                frames.insert(at, dice.choice(frames[1:]))
            case _:
                frames.append(frames.pop(at))
    sent = bytearray(b"".join(frames))
    for _ in range(dice.randint(0, 4)):
        at = dice.randrange(len(PREFACE), len(sent)) if dice.random() < 0.9 else dice.randrange(len(sent))
        match dice.randrange(4):
            case 0:
                sent[at] = dice.randrange(256)
            case 1:
                sent[at] ^= 1 << dice.randrange(8)
            case 2:
                sent[at:at] = dice.randbytes(dice.randint(1, 20))
            case _:
                del sent[at : at + dice.randint(1, 20)]
    return bytes(sent)


async def _converse(url: str, sent: bytes, dice: random.Random) -> None:
    """In pieces; then half-close, and read to the end, which must come."""
    parts = httpx.URL(url)
    reader, writer = await asyncio.open_connection(parts.host, parts.port)
    with contextlib.suppress(ConnectionError):
        cut = dice.choice([1, 7, 100, 10_000])
        for at in range(0, len(sent), cut):
            writer.write(sent[at : at + cut])
            if cut < 100 and dice.random() < 0.02:
                await asyncio.sleep(0)
        writer.write_eof()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await reader.read(65_536):
                pass
    writer.close()


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("seed", range(3))
async def test_mutated_conversations_end_and_break_nothing(broker: BrokerProcess, rest: Rest, seed: int) -> None:
    dice = random.Random(seed)
    await rest.create_topic()
    await rest.create_subscription()
    frames = _conversation(rest)
    async with good_client(broker):
        for _ in range(10):
            await asyncio.gather(*[_converse(broker.url, _mutated(frames, dice), dice) for _ in range(20)])
        await _converse(broker.url, b"".join(frames), dice)


async def test_requests_of_any_bytes_are_answered_and_none_is_a_fault(broker: BrokerProcess, rest: Rest) -> None:
    """Mutated messages of every kind, in whole frames: each call ends with a status, and never with INTERNAL 13 of
    ours, which the log would have (the fixture looks)."""
    dice = random.Random(7)
    await rest.create_topic()
    await rest.create_subscription()
    publish = messages.PublishRequest(
        topic=rest.topic(), messages=[{"data": b"x" * 50, "attributes": {"key": "välue"}, "ordering_key": "k"}]
    ).SerializeToString()
    ack_ids = [bytes(dice.choices(b"ABCabc012-_=/+.\xc3", k=dice.randint(0, 200))) for _ in range(150)]
    acks = [
        b"\x0a"
        + bytes([len(name)])
        + name
        + b"".join(b"\x12" + _varint(len(a)) + a for a in dice.sample(ack_ids, 5))
        for name in [rest.subscription().encode()] * 150
    ]
    nested = b""
    for _ in range(300):
        nested = b"\x12" + _varint(len(nested)) + nested  # a message within messages within …
    odd = [
        b"",
        b"\xff" * 100,
        nested,
        b"\x0a\x05\xff\xfe\xfd\xfc\xfb",
        b"\x0a\xff\xff\xff\xff\x0f",
        b"\x7b" * 1_000,
    ]
    requests = [("Subscriber/Acknowledge", ack) for ack in acks]
    for method in ("Publisher/Publish", "Subscriber/Pull", "Subscriber/Acknowledge", "Subscriber/Seek"):
        requests += [(method, one) for one in odd]
        requests += [(method, _mutated_bytes(publish, dice)) for _ in range(100)]
    crowd = Crowd(broker.url)
    async with good_client(broker):
        for method in {method for method, _ in requests}:
            calls = await crowd.call(method, [(None, request) for of, request in requests if of == method])
            await crowd.until(lambda calls=calls: all(call.status is not None for call in calls))
            assert 13 not in {call.status for call in calls}
    await crowd.close()


def _varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + _varint(number >> 7)


def _mutated_bytes(sent: bytes, dice: random.Random) -> bytes:
    changed = bytearray(sent)
    for _ in range(dice.randint(1, 5)):
        changed[dice.randrange(len(changed))] = dice.randrange(256)
    return bytes(changed[: dice.randint(1, len(changed))] if dice.random() < 0.3 else changed)
