"""A stream has never more outstanding than its client said that it takes."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.core.pulling.stream import A_WHILE, Received, Stream, Streams, numbered
from tests.fixtures.broker import eventually

Settle = Callable[[Streams, Stream, list[Received]], Awaitable[None]]


def _json(messages: list[Received]) -> list[dict[str, str]]:
    return [{"ackId": message.ack_id} for message in messages]


async def _ack(streams: Streams, stream: Stream, messages: list[Received]) -> None:
    await stream.ack(messages)


async def _unary_ack(streams: Streams, stream: Stream, messages: list[Received]) -> None:
    await streams.rest.acknowledge(_json(messages))


async def _ack_on_another_stream(streams: Streams, stream: Stream, messages: list[Received]) -> None:
    await (await streams.open(max_outstanding_messages=1)).send(ack_ids=[m.ack_id for m in messages])


async def _nack(streams: Streams, stream: Stream, messages: list[Received]) -> None:
    await stream.nack(messages)


async def _unary_nack(streams: Streams, stream: Stream, messages: list[Received]) -> None:
    await streams.rest.modify_ack_deadline(_json(messages), 0)


async def _expiry(streams: Streams, stream: Stream, messages: list[Received]) -> None:
    await stream.modify(messages, 1)


async def _expiry_after_a_unary_change(streams: Streams, stream: Stream, messages: list[Received]) -> None:
    await streams.rest.modify_ack_deadline(_json(messages), 1)


@pytest.mark.parametrize(
    "settle",
    [_ack, _unary_ack, _nack, _unary_nack, _expiry, _expiry_after_a_unary_change],
    ids=lambda s: s.__name__,
)
async def test_what_is_settled_makes_capacity(streams: Streams, settle: Settle) -> None:
    await streams.subscribe()
    await streams.rest.publish(*numbered(6))
    stream = await streams.open(max_outstanding_messages=2)
    first = await stream.take(2)
    await stream.has_no_more()
    await settle(streams, stream, first[:1])
    await stream.take()
    await stream.has_no_more()


async def test_capacity_made_through_another_stream_is_used_by_either(streams: Streams) -> None:
    await streams.subscribe()
    await streams.rest.publish(*numbered(6))
    stream = await streams.open(max_outstanding_messages=2)
    first = await stream.take(2)
    await _ack_on_another_stream(streams, stream, first)
    await eventually(lambda: len(streams.of_all()) == 5)
    await stream.take(2)
    await stream.has_no_more()


@pytest.mark.parametrize("ordered", [False, True])
async def test_the_whole_backlog_comes_through_a_small_window(streams: Streams, ordered: bool) -> None:
    """Acks are late, in pieces and in any order."""
    await streams.subscribe(enableMessageOrdering=ordered)
    await streams.rest.publish(*numbered(500))
    stream = await streams.open(max_outstanding_messages=7)
    chosen = random.Random(7)
    while len(stream.received) < 500 or stream.outstanding:
        await stream.until(lambda: stream.outstanding)
        waiting = list(stream.outstanding.values())
        await stream.ack(chosen.sample(waiting, chosen.randint(1, len(waiting))))
    assert stream.most_outstanding <= 7
    assert sorted(m.text for m in stream.received) == sorted(numbered(500))


async def test_what_does_not_fit_is_there_for_others(streams: Streams) -> None:
    await streams.subscribe()
    await streams.rest.publish(*numbered(10))
    stream = await streams.open(max_outstanding_messages=3)
    mine = await stream.take_texts(3)
    other = await streams.open()
    assert sorted(mine + await other.take_texts(7)) == numbered(10)
    await streams.rest.publish("next")
    assert await other.take_texts() == ["next"]
    assert await streams.rest.pull() == []


async def test_a_full_stream_leaves_new_messages_to_those_with_capacity(streams: Streams) -> None:
    await streams.subscribe()
    full = await streams.open(max_outstanding_messages=1)
    await streams.rest.publish("fills it")
    await full.take()
    free = await streams.waiting()
    for text in numbered(20):
        await streams.rest.publish(text)
    assert await free.take_texts(20) == numbered(20)
    await full.has_no_more(seconds=0.1)


@pytest.mark.parametrize("limit", [None, 0, -1])
@pytest.mark.parametrize("field", ["max_outstanding_messages", "max_outstanding_bytes"])
async def test_no_limit_is_no_limit(streams: Streams, field: str, limit: int | None) -> None:
    await streams.subscribe()
    for first in (0, 1000):
        await streams.rest.publish(*numbered(1000, first))
    first_request: dict[str, Any] = {field: limit}
    stream = await streams.open(**first_request)
    assert len(await stream.take(2000)) == 2000


async def test_bytes_are_limited(streams: Streams) -> None:
    """Google's words: no more is sent once they are reached; so the last message may go over."""
    await streams.subscribe()
    await streams.rest.publish(*("x" * 400 for _ in range(10)))
    stream = await streams.open(max_outstanding_bytes=1000)
    settled = 0
    while settled < 10:
        await stream.until(lambda: stream.outstanding)
        await asyncio.sleep(A_WHILE)  # whatever else comes, comes
        waiting = list(stream.outstanding.values())
        assert sum(m.size for m in waiting[:-1]) < 1000
        assert len(waiting) >= 2 or settled >= 8
        await stream.ack(waiting)
        settled += len(waiting)


async def test_a_message_larger_than_the_limit_comes_alone(streams: Streams) -> None:
    await streams.subscribe()
    await streams.rest.publish(*(dead_letter * 5000 for dead_letter in "abc"))
    stream = await streams.open(max_outstanding_bytes=1000)
    for dead_letter in "abc":
        [large] = await stream.take()
        assert large.text[0] == dead_letter
        await stream.has_no_more(seconds=0.1)
        await stream.ack([large])


async def test_both_limits_hold_at_once(streams: Streams) -> None:
    await streams.subscribe()
    await streams.rest.publish(*numbered(10))
    few = await streams.open(max_outstanding_messages=2, max_outstanding_bytes=1_000_000)
    await few.take(2)
    await few.has_no_more(seconds=0.1)
    small = await streams.open(max_outstanding_messages=1000, max_outstanding_bytes=1)
    await small.take()
    await small.has_no_more()


async def test_an_extended_deadline_keeps_the_place_in_the_window(streams: Streams) -> None:
    """What the official clients do for every message: a receipt, and extensions."""
    await streams.subscribe()
    await streams.rest.publish(*numbered(3))
    stream = await streams.open(max_outstanding_messages=1)
    for _ in range(3):
        [came] = await stream.take()
        for seconds in (60, 10, 600):
            await stream.modify([came], seconds)
            await streams.rest.modify_ack_deadline(_json([came]), seconds)
        await stream.has_no_more(seconds=0.1)
        await stream.ack([came])


async def test_expiry_of_a_whole_window_makes_capacity_for_it_again(streams: Streams) -> None:
    await streams.subscribe()
    await streams.rest.publish(*numbered(5))
    stream = await streams.open(max_outstanding_messages=5)
    first = await stream.take(5)
    await stream.modify(first, 1)
    again = await stream.take(5)
    assert sorted(m.text for m in again) == numbered(5)
    assert {m.ack_id for m in again}.isdisjoint(m.ack_id for m in first)
    await stream.has_no_more()
