"""Clients that leave a stream, politely or not: nothing is swallowed (by the emulator: for two ack deadlines)."""

import asyncio
from typing import Any

import pytest

from broker.net.http2.frames import Flag, Kind, frame, window_update
from tests.core.pulling.raw import STREAM, RawStreams, leave, received_by
from tests.core.pulling.stream import A_WHILE, Ended, Streams, numbered
from tests.fixtures.broker import eventually

OK = Ended("OK", "")
WAYS = ["cancelled", "closed", "aborted"]


async def test_half_close_ends_the_stream_ok(streams: Streams) -> None:
    await streams.subscribe()
    stream = await streams.waiting()
    await stream.half_close()
    assert await stream.ended() == OK


async def test_what_a_request_before_the_half_close_asked_for_is_done(streams: Streams) -> None:
    await streams.subscribe()
    await streams.rest.publish("acked", "nacked")
    stream = await streams.open()
    acked, nacked = await stream.take(2)
    await stream.send(ack_ids=[acked.ack_id], modify_deadline_ack_ids=[nacked.ack_id], modify_deadline_seconds=[0])
    await stream.half_close()
    assert await stream.ended() == OK
    # What was nacked may come on the same stream, before its half-close does.
    [again] = stream.received[2:] or await (await streams.open()).take()
    assert again.text == "nacked"
    assert await streams.unacked() == 1


async def test_what_a_half_closed_stream_had_no_capacity_for_is_there_for_others_at_once(streams: Streams) -> None:
    await streams.subscribe()
    await streams.rest.publish(*numbered(10))
    stream = await streams.open(max_outstanding_messages=3)
    mine = await stream.take(3)
    await stream.half_close()
    assert await stream.ended() == OK
    other = await streams.open()
    rest = await other.take(7)
    assert sorted(m.text for m in mine + rest) == numbered(10)
    await other.has_no_more()  # what was handed over stays so
    await other.ack(mine)
    await eventually(lambda: _count(streams, 7))


async def _count(streams: Streams, unacked: int) -> bool:
    return await streams.unacked() == unacked


async def test_a_half_closed_stream_swallows_nothing(streams: Streams) -> None:
    await streams.subscribe()
    for n in range(10):
        leaving, staying = await streams.waiting(), await streams.waiting()
        await leaving.half_close()
        await leaving.ended()
        await streams.rest.publish(f"m{n}")
        assert await staying.take_texts() == [f"m{n}"]
        await staying.ack(staying.received)
        await staying.close()


async def test_a_cancelled_stream_swallows_nothing(streams: Streams) -> None:
    await streams.subscribe()
    staying = await streams.waiting()
    for n in range(20):
        leaving = await streams.waiting()
        leaving.cancel()
        await staying.round_trip()  # on the same connection: the broker has read the cancellation before
        await streams.rest.publish(f"m{n}")
        assert await staying.take_texts() == [f"m{n}"]
        await staying.ack(staying.received[-1:])


def _first(streams: Streams) -> dict[str, Any]:
    return {"subscription": streams.rest.subscription(), "stream_ack_deadline_seconds": 600}


@pytest.mark.parametrize("how", WAYS)
async def test_a_stream_that_is_gone_swallows_nothing(streams: Streams, raw_streams: RawStreams, how: str) -> None:
    await streams.subscribe()
    staying = await streams.waiting()
    for n in range(6):
        peer = await raw_streams.waiting(**_first(streams))
        await leave(peer, how)
        await streams.rest.publish(f"m{n}")
        assert await staying.take_texts() == [f"m{n}"]
        await staying.ack(staying.received[-1:])


@pytest.mark.parametrize("how", WAYS)
async def test_what_a_client_did_not_take_is_there_for_others_at_once(
    streams: Streams, raw_streams: RawStreams, how: str
) -> None:
    """It was claimed for the stream, but the client's windows were full; the attempt does not count."""
    await streams.subscribe(deadLetterPolicy={"deadLetterTopic": streams.rest.topic()})
    peer = await raw_streams.open(window=20, **_first(streams))
    await streams.rest.publish(*numbered(5))
    await peer.next_of(Kind.DATA, STREAM)
    await leave(peer, how)
    came = await (await streams.open()).take(5)
    assert sorted(m.text for m in came) == numbered(5)
    assert {m.attempt for m in came} == {1}


async def test_what_is_on_its_way_at_the_half_close_comes_or_is_given_back_but_not_both(
    streams: Streams, raw_streams: RawStreams
) -> None:
    await streams.subscribe()
    await streams.rest.publish("a")
    peer = await raw_streams.open(window=20, **_first(streams))
    await peer.next_of(Kind.DATA, STREAM)
    peer.send(frame(Kind.DATA, Flag.END_STREAM, STREAM, b""))
    other = await streams.waiting()
    await asyncio.sleep(A_WHILE)
    peer.send(window_update(STREAM, 1_000_000))
    await peer.read_until(lambda f: f.ends_stream or f.kind == Kind.RST_STREAM)
    await other.round_trip()
    assert sorted(received_by(peer) + [m.text for m in other.received]) == ["a"]


async def test_a_client_that_does_not_read_does_not_hoard(streams: Streams, raw_streams: RawStreams) -> None:
    """What it is not able to take goes to those that are; bounded is only what is on its way to it."""
    await streams.subscribe()
    peer = await raw_streams.waiting(window=20, **_first(streams))
    for first in (0, 1000, 2000):
        await streams.rest.publish(*numbered(1000, first))
    reading = await streams.open()
    await reading.until(lambda: len(reading.received) >= 1000)
    await leave(peer, "closed")
    await reading.until(lambda: len(reading.received) >= 3000)
    assert sorted(m.text for m in reading.received) == sorted(numbered(3000))


async def test_a_stream_whose_call_is_over_swallows_nothing(streams: Streams) -> None:
    """The client's own deadline of the call: 15 or 30 minutes with the official ones."""
    await streams.subscribe()
    stream = await streams.open(call_deadline=0.5)
    assert (await stream.ended()).code == "DEADLINE_EXCEEDED"
    staying = await streams.waiting(connection=1)
    await streams.rest.publish("a")
    assert await staying.take_texts() == ["a"]


@pytest.mark.parametrize("how", ["cancel", "half-close"])
async def test_what_was_handed_over_comes_to_another_stream_at_its_deadline_and_not_before(
    streams: Streams, how: str
) -> None:
    await streams.subscribe()
    await streams.rest.publish(*numbered(3))
    broken = await streams.open(stream_ack_deadline_seconds=10)
    had = await broken.take(3)
    other = await streams.waiting(connection=1)
    before = asyncio.get_running_loop().time()
    await streams.rest.modify_ack_deadline([{"ackId": m.ack_id} for m in had], 1)
    if how == "cancel":
        broken.cancel()
    else:
        await broken.half_close()
    await broken.ended()
    came = await other.take(3)
    assert sorted(m.text for m in came) == numbered(3)
    assert min(m.at for m in came) - before >= 1
    await other.has_no_more()


async def test_a_client_that_left_can_still_ack_what_it_had(streams: Streams) -> None:
    await streams.subscribe()
    await streams.rest.publish(*numbered(3))
    broken = await streams.open()
    had = await broken.take(3)
    await broken.close()
    await streams.rest.acknowledge([{"ackId": m.ack_id} for m in had])
    assert await streams.unacked() == 0


async def test_streams_that_come_and_go_lose_nothing(streams: Streams) -> None:
    """Each reads a little, acks it and leaves while more is on its way."""
    await streams.subscribe()
    acked: list[str] = []

    async def visit() -> None:
        stream = await streams.open(max_outstanding_messages=4)
        for _ in range(3):
            came = await stream.take(4)
            await stream.ack(came)
            acked.extend(m.message_id for m in came)
        await stream.half_close()
        assert await stream.ended() == OK
        if stream.outstanding:
            unread = [{"ackId": m.ack_id} for m in stream.outstanding.values()]
            await streams.rest.modify_ack_deadline(unread, 0)

    published = await streams.rest.publish(*numbered(600))
    for _ in range(3):
        await asyncio.gather(*(visit() for _ in range(5)))
    last = await streams.open(acks_at_once=True)
    await eventually(lambda: _count(streams, 0))
    assert sorted(acked + [m.message_id for m in last.received]) == sorted(published)
