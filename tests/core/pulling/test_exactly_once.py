"""Acks and deadline changes on streams of exactly-once subscriptions are confirmed.

As https://cloud.google.com/pubsub/docs/exactly-once-delivery says.
"""

from typing import Any

from tests.core.pulling.stream import Streams
from tests.fixtures.broker import eventually, message


async def _subscribe(streams: Streams, **fields: Any) -> None:
    await streams.subscribe(enableExactlyOnceDelivery=True, **fields)


async def test_an_ack_is_confirmed(streams: Streams) -> None:
    await _subscribe(streams)
    await streams.rest.publish("a", "b", "c")
    stream = await streams.open()
    messages = await stream.take(3)
    await stream.ack(messages)
    await stream.until(lambda: len(stream.acked) == 3)
    assert sorted(stream.acked) == sorted(m.ack_id for m in messages)
    assert await streams.unacked() == 0
    assert stream.not_acked == stream.not_acked_yet == stream.modified == stream.not_modified == []


async def test_a_repeated_ack_is_confirmed_again(streams: Streams) -> None:
    """A client that has not seen the confirmation tries again."""
    await _subscribe(streams)
    await streams.rest.publish("a")
    stream = await streams.open()
    [came] = await stream.take()
    await stream.ack([came])
    await stream.until(lambda: stream.acked == [came.ack_id])
    await stream.ack([came])
    await stream.until(lambda: stream.acked == [came.ack_id] * 2)


async def test_stale_acks_are_named_and_good_ones_confirmed(streams: Streams) -> None:
    await _subscribe(streams)
    await streams.rest.publish("a", "b")
    stream = await streams.open()
    stale, good = await stream.take(2)
    await stream.nack([stale])
    [again] = await stream.take()
    await stream.ack([stale, good])
    await stream.until(lambda: stream.acked and stream.not_acked)
    assert (stream.acked, stream.not_acked) == ([good.ack_id], [stale.ack_id])
    await stream.ack([again])
    await stream.until(lambda: again.ack_id in stream.acked)
    assert await streams.unacked() == 0


async def test_an_ack_after_the_deadline_is_refused_although_nobody_else_has_the_message(streams: Streams) -> None:
    await _subscribe(streams)
    await streams.rest.publish("late", "fills the window")
    stream = await streams.open(max_outstanding_messages=2)
    late, _ = await stream.take(2)
    await stream.modify([late], 1)
    [again] = await stream.take()
    assert again.text == "late"
    await stream.ack([late])
    await stream.until(lambda: stream.not_acked == [late.ack_id])
    assert await streams.unacked() == 2


async def test_deadline_changes_are_confirmed(streams: Streams) -> None:
    await _subscribe(streams)
    await streams.rest.publish("extended", "nacked")
    stream = await streams.open()
    extended, nacked = await stream.take(2)
    await stream.modify([extended], 600)
    await stream.until(lambda: stream.modified == [extended.ack_id])
    await stream.nack([nacked])
    await stream.until(lambda: stream.modified == [extended.ack_id, nacked.ack_id])
    [again] = await stream.take()
    await stream.modify([again, nacked], 30)
    await stream.until(lambda: again.ack_id in stream.modified and stream.not_modified)
    assert stream.not_modified == [nacked.ack_id]
    assert stream.acked == stream.not_acked == []


async def test_deadlines_of_what_is_acked_cannot_be_changed(streams: Streams) -> None:
    await _subscribe(streams)
    await streams.rest.publish("a")
    stream = await streams.open()
    [came] = await stream.take()
    await stream.ack([came])
    await stream.until(lambda: stream.acked)
    await stream.modify([came], 0)
    await stream.until(lambda: stream.not_modified == [came.ack_id])
    await stream.has_no_more()


async def test_acks_and_deadline_changes_of_one_request_are_confirmed_as_what_they_are(streams: Streams) -> None:
    await _subscribe(streams)
    await streams.rest.publish("acked", "extended")
    stream = await streams.open()
    acked, extended = await stream.take(2)
    await stream.send(
        ack_ids=[acked.ack_id], modify_deadline_ack_ids=[extended.ack_id], modify_deadline_seconds=[600]
    )
    await stream.until(lambda: stream.acked and stream.modified)
    assert (stream.acked, stream.modified) == ([acked.ack_id], [extended.ack_id])


async def test_the_stream_that_asked_is_told(streams: Streams) -> None:
    await _subscribe(streams)
    await streams.rest.publish("a")
    receiver = await streams.open()
    [came] = await receiver.take()
    other = await streams.waiting()
    await other.send(ack_ids=[came.ack_id])
    await other.until(lambda: other.acked == [came.ack_id])
    await receiver.round_trip()
    assert receiver.acked == []


async def test_an_ack_before_its_turn_is_told_apart(streams: Streams) -> None:
    """With ordering keys, acks must come in order; what is early may be tried again."""
    await _subscribe(streams, enableMessageOrdering=True)
    await streams.rest.publish(message("k1", orderingKey="k"), message("k2", orderingKey="k"))
    stream = await streams.open()
    first, second = await stream.take(2)
    await stream.ack([second])
    await stream.until(lambda: stream.not_acked_yet == [second.ack_id])
    await stream.ack([first, second])
    await stream.until(lambda: len(stream.acked) == 2)
    assert sorted(stream.acked) == sorted([first.ack_id, second.ack_id])
    assert stream.not_acked == []
    assert await streams.unacked() == 0


async def test_thousands_of_acks_are_confirmed(streams: Streams) -> None:
    await _subscribe(streams)
    for _ in range(3):
        await streams.rest.publish(*("m" for _ in range(1000)))
    stream = await streams.open(acks_at_once=True)
    await stream.until(lambda: len(stream.acked) == 3000)
    assert set(stream.acked) == {m.ack_id for m in stream.received}
    assert await streams.unacked() == 0


async def test_an_acked_message_never_comes_again(streams: Streams) -> None:
    """Not to others, not after the deadline that it had, not when its stream is gone."""
    await _subscribe(streams)
    await streams.rest.publish("a")
    stream = await streams.open()
    [came] = await stream.take()
    await stream.modify([came], 1)
    await stream.ack([came])
    await stream.until(lambda: stream.acked)
    await stream.close()
    other = await streams.waiting()
    await other.has_no_more(seconds=1.5)


async def test_without_exactly_once_nothing_is_confirmed(streams: Streams) -> None:
    await streams.subscribe()
    await streams.rest.publish("acked", "modified", "nacked")
    stream = await streams.open(protocol_version=None)
    acked, modified, nacked = await stream.take(3)
    await stream.ack([acked])
    await stream.modify([modified], 30)
    await stream.nack([nacked])
    await stream.take()
    await stream.ack([acked, modified, nacked])  # one of them is stale

    async def settled() -> bool:
        return await streams.unacked() == 1

    await eventually(settled)
    await streams.rest.publish("last")
    await stream.take()
    assert stream.empty == 0
    assert stream.acked == stream.not_acked == stream.modified == stream.not_modified == []
