"""The ack deadline of what a stream hands over is the stream's.

No stream has one of less than ten seconds, and a broker's time cannot be moved from outside: what has to be waited
for is waited for at once.
"""

import asyncio
from typing import Any

import pytest

from tests.core.pulling.stream import Streams, numbered

DEADLINE = 10  # seconds
LATE = 8  # seconds by which a redelivery may be late, on a machine that is busy


async def _subscribe(streams: Streams, name: str, *messages: str, **fields: Any) -> None:
    """A topic and a subscription of that name."""
    await streams.rest.create_topic(name)
    await streams.rest.create_subscription(name, name, **fields)
    if messages:
        await streams.rest.publish(*messages, topic=name)


async def _the_stream_s_deadline_counts(streams: Streams) -> None:
    """Not the subscription's of ten minutes."""
    await _subscribe(streams, "long", "a", ackDeadlineSeconds=600)
    before = asyncio.get_running_loop().time()
    stream = await streams.open("long", stream_ack_deadline_seconds=DEADLINE)
    await stream.take()
    [again] = await stream.take(seconds=DEADLINE + LATE)
    assert again.at - before >= DEADLINE


async def _a_longer_deadline_counts_as_well(streams: Streams) -> None:
    """Although the subscription's is ten seconds."""
    await _subscribe(streams, "short", "a", ackDeadlineSeconds=DEADLINE)
    stream = await streams.open("short", stream_ack_deadline_seconds=60)
    await stream.take()
    await stream.has_no_more(seconds=DEADLINE + 1.5)
    assert await streams.rest.pull("short") == []


async def _a_changed_deadline_counts_for_what_comes_later(streams: Streams) -> None:
    await _subscribe(streams, "changed", "before")
    stream = await streams.open("changed", stream_ack_deadline_seconds=60)
    await stream.take()
    await stream.send(stream_ack_deadline_seconds=DEADLINE)
    await stream.send(stream_ack_deadline_seconds=0)  # no change
    await stream.round_trip()
    before = asyncio.get_running_loop().time()
    await streams.rest.publish("after", topic="changed")
    assert await stream.take_texts() == ["after"]
    [again] = await stream.take(seconds=DEADLINE + LATE)
    assert again.text == "after"
    assert again.at - before >= DEADLINE
    await stream.has_no_more()


async def _the_end_of_a_deadline_makes_capacity(streams: Streams) -> None:
    """Once: a nack that comes after it is too late to make more."""
    await _subscribe(streams, "window", "a", "b", "c")
    stream = await streams.open("window", stream_ack_deadline_seconds=DEADLINE, max_outstanding_messages=2)
    first = await stream.take(2)
    await stream.take(2, seconds=DEADLINE + LATE)
    await stream.modify(first, 0)
    await stream.has_no_more()


async def _an_idle_stream_stays_open(streams: Streams) -> None:
    await _subscribe(streams, "idle")
    stream = await streams.open("idle", protocol_version=None)
    await asyncio.sleep(DEADLINE + 1)
    await streams.rest.publish("after all", topic="idle")
    assert await stream.take_texts() == ["after all"]


async def _what_was_on_its_way_when_the_client_left_comes_at_the_deadline(streams: Streams) -> None:
    """Nothing is lost, and what the client had does not come earlier."""
    await _subscribe(streams, "broken", *numbered(1000))
    before = asyncio.get_running_loop().time()
    broken = await streams.open("broken", connection=1, stream_ack_deadline_seconds=DEADLINE)
    await broken.take()
    await broken.close()
    had = {m.message_id for m in broken.received}
    other = await streams.open("broken")
    await other.until(lambda: len(other.received) >= 1000, seconds=DEADLINE + LATE)
    assert sorted(m.text for m in other.received) == sorted(numbered(1000))
    assert min(m.at for m in other.received if m.message_id in had) - before >= DEADLINE


@pytest.mark.slow
@pytest.mark.ci
async def test_the_stream_s_ack_deadline_is_what_counts(streams: Streams) -> None:
    scenarios = (
        _the_stream_s_deadline_counts,
        _a_longer_deadline_counts_as_well,
        _a_changed_deadline_counts_for_what_comes_later,
        _the_end_of_a_deadline_makes_capacity,
        _an_idle_stream_stays_open,
        _what_was_on_its_way_when_the_client_left_comes_at_the_deadline,
    )
    outcomes = await asyncio.gather(*(scenario(streams) for scenario in scenarios), return_exceptions=True)
    if failed := [outcome for outcome in outcomes if isinstance(outcome, Exception)]:
        raise ExceptionGroup("some do not hold", failed)
