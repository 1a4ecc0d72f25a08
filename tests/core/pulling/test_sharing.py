"""Many streams on one subscription."""

import asyncio
from functools import partial
from typing import Any

import pytest

from tests.core.pulling.raw import NEXT_STREAM, RawStreams, received_by
from tests.core.pulling.stream import A_WHILE, Stream, Streams, numbered
from tests.fixtures.broker import eventually

CONNECTIONS = 8


async def _open(streams: Streams, count: int, **options: Any) -> list[Stream]:
    """On several connections."""
    opened = [streams.waiting(connection=n % CONNECTIONS, **options) for n in range(count)]
    return list(await asyncio.gather(*opened))


def _has_come(opened: list[Stream], text: str) -> bool:
    return any(message.text == text for stream in opened for message in stream.received)


def _counts(opened: list[Stream]) -> list[int]:
    return [len(stream.received) for stream in opened]


async def _publish(streams: Streams, count: int) -> None:
    for first in range(0, count, 1000):
        await streams.rest.publish(*numbered(min(1000, count - first), first))


def _assert_each_once(opened: list[Stream], count: int) -> None:
    texts = [m.text for stream in opened for m in stream.received]
    assert sorted(texts) == sorted(numbered(count))


async def test_two_hundred_streams_share_a_backlog_evenly(streams: Streams) -> None:
    """First each fills its window, of ten; then each acks at once whatever comes.

    What comes then depends on how fast its client acks, too; all of them are one process here, which serves them in
    turn: so nobody may have twice, or half, of what the average has.
    """
    count = 6000
    await streams.subscribe()
    await _publish(streams, count)
    opened = await _open(streams, 200, max_outstanding_messages=10)
    await eventually(lambda: min(_counts(opened)) == 10)
    assert max(_counts(opened)) == 10
    for stream in opened:
        stream.acks_at_once = True
    await asyncio.gather(*(stream.ack(stream.received) for stream in opened))
    await eventually(lambda: sum(_counts(opened)) >= count)
    _assert_each_once(opened, count)
    counts = sorted(_counts(opened))
    assert counts[0] >= 0.5 * count / 200, counts
    assert counts[-1] <= 2 * count / 200, counts

    async def all_acked() -> bool:
        return await streams.unacked() == 0

    await eventually(all_acked)


@pytest.mark.parametrize("window", [None, 1000])
async def test_a_burst_is_spread_over_the_streams_that_wait(streams: Streams, window: int | None) -> None:
    """None of them has anything to do: whoever would be given all of it would be slower than ten."""
    await streams.subscribe()
    opened = await _open(streams, 10, **({} if window is None else {"max_outstanding_messages": window}))
    await _publish(streams, 1000)
    await eventually(lambda: sum(_counts(opened)) >= 1000)
    _assert_each_once(opened, 1000)
    assert min(_counts(opened)) >= 50, _counts(opened)
    assert max(_counts(opened)) <= 200, _counts(opened)


async def test_single_messages_go_round(streams: Streams) -> None:
    """No stream is the one that always gets them."""
    await streams.subscribe()
    opened = await _open(streams, 5)
    for text in numbered(50):
        await streams.rest.publish(text)
        await eventually(partial(_has_come, opened, text))
    assert min(_counts(opened)) >= 1, _counts(opened)


async def test_a_slow_stream_does_not_hold_up_the_others(streams: Streams) -> None:
    await streams.subscribe()
    slow = await streams.waiting(max_outstanding_messages=5)
    fast = await streams.waiting(max_outstanding_messages=50, acks_at_once=True)
    await _publish(streams, 1000)
    await fast.until(lambda: len(fast.received) >= 995)
    assert len(slow.received) == 5
    _assert_each_once([slow, fast], 1000)


async def test_streams_of_different_subscriptions_each_get_everything(streams: Streams) -> None:
    names = [f"sub{n}" for n in range(10)]
    for name in names:
        await streams.subscribe(name)
    opened = [await streams.waiting(name) for name in names]
    await _publish(streams, 100)
    for stream in opened:
        assert await stream.take_texts(100) == numbered(100)


# --- client_id ----------------------------------------------------------------------------------------------


async def test_a_client_that_opens_its_stream_again_has_still_outstanding_what_it_had(streams: Streams) -> None:
    await streams.subscribe()
    await streams.rest.publish(*numbered(10))
    await streams.subscribe("other")
    other = await streams.waiting("other")
    broken = await streams.open(client_id="worker", max_outstanding_messages=3)
    had = await broken.take(3)
    await broken.close()
    for _ in range(3):  # on the same connection: the broker has read the cancellation before, and acted
        await other.round_trip()
    again = await streams.waiting(client_id="worker", max_outstanding_messages=5)
    await again.take(2)
    await again.has_no_more()
    await again.ack(had)
    await again.take(3)
    await again.has_no_more()


async def test_a_client_whose_window_is_full_from_before_waits(streams: Streams) -> None:
    await streams.subscribe()
    await streams.rest.publish(*numbered(5))
    broken = await streams.open(client_id="worker", max_outstanding_messages=2)
    had = await broken.take(2)
    await broken.half_close()
    await broken.ended()
    again = await streams.waiting(client_id="worker", max_outstanding_messages=2)
    await again.has_no_more()
    await streams.rest.acknowledge([{"ackId": had[0].ack_id}])
    await again.take()
    await streams.rest.modify_ack_deadline([{"ackId": had[1].ack_id}], 1)
    await again.take()
    await again.has_no_more()


async def test_a_client_that_breaks_off_and_opens_its_next_stream_in_one_breath_has_what_it_had(
    streams: Streams, raw_streams: RawStreams
) -> None:
    """On one connection the broker reads the one before the other."""
    await streams.subscribe()
    await streams.rest.publish(*numbered(5))
    first: dict[str, Any] = {
        "subscription": streams.rest.subscription(),
        "stream_ack_deadline_seconds": 600,
        "client_id": "worker",
        "max_outstanding_messages": 2,
    }
    peer = await raw_streams.open(**first)
    await peer.read_until(lambda _: len(received_by(peer)) == 2)
    raw_streams.replace(peer, **first)
    await asyncio.sleep(A_WHILE)
    assert await peer.alive()
    assert received_by(peer, NEXT_STREAM) == []


@pytest.mark.parametrize("client_id", [None, "another"])
async def test_other_clients_do_not_inherit(streams: Streams, client_id: str | None) -> None:
    await streams.subscribe()
    await streams.rest.publish(*numbered(5))
    broken = await streams.open(client_id="worker", max_outstanding_messages=2)
    await broken.take(2)
    await broken.close()
    other = await streams.open(client_id=client_id, max_outstanding_messages=2)
    await other.take(2)
    await other.has_no_more()
