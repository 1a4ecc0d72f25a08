"""Ordering keys on streams (A6).

As https://cloud.google.com/pubsub/docs/ordering says;
docs/compared-with-the-emulator.md has what goes wrong in the emulator.
"""

import asyncio
import random
from functools import partial
from typing import Any

import pytest

from tests.core.pulling.reference import Reference
from tests.core.pulling.stream import Received, Stream, Streams
from tests.fixtures.broker import PATIENCE_SECONDS, eventually, message


async def _subscribe(streams: Streams, **fields: Any) -> None:
    await streams.subscribe(enableMessageOrdering=True, **fields)


async def _publish(streams: Streams, *texts: str) -> list[str]:
    """One request each, as ordered publishers do; the first letter is the key."""
    ids = []
    for text in texts:
        ids += await streams.rest.publish(message(text, orderingKey=text[0]))
    return ids


def _of_key(key: str, count: int, first: int = 0) -> list[str]:
    return [f"{key}{n}" for n in range(first, first + count)]


async def _all_acked(streams: Streams) -> bool:
    return await streams.unacked() == 0


async def test_messages_of_a_key_arrive_in_order(streams: Streams) -> None:
    await _subscribe(streams)
    await _publish(streams, *_of_key("k", 10))
    stream = await streams.open()
    first = await stream.take(10)
    assert [m.text for m in first] == _of_key("k", 10)
    assert {m.key for m in first} == {"k"}
    await _publish(streams, *_of_key("k", 10, 10))
    await stream.ack(first)
    later = await stream.take(10)
    assert [m.text for m in later] == _of_key("k", 10, 10)
    await stream.ack(later)
    await eventually(lambda: _all_acked(streams))
    await stream.has_no_more()


async def test_a_long_key_comes_through_a_small_window_in_order(streams: Streams) -> None:
    await _subscribe(streams)
    await streams.rest.publish(*(message(text, orderingKey="k") for text in _of_key("k", 300)))
    stream = await streams.open(max_outstanding_messages=7, acks_at_once=True)
    assert await stream.take_texts(300) == _of_key("k", 300)
    assert stream.most_outstanding <= 7


async def test_a_nack_brings_the_message_and_the_later_ones_again_in_order(streams: Streams) -> None:
    await _subscribe(streams)
    await _publish(streams, *_of_key("k", 5))
    stream = await streams.open()
    first = await stream.take(5)
    await stream.ack(first[:1])
    await stream.nack(first[1:2])
    again = await stream.take(4)
    assert [m.text for m in again] == _of_key("k", 4, 1)
    assert {m.ack_id for m in again}.isdisjoint(m.ack_id for m in first)
    await _publish(streams, "k5")
    await stream.ack(again)
    assert await stream.take_texts() == ["k5"]
    await stream.ack(stream.received[-1:])
    await eventually(lambda: _all_acked(streams))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
async def test_nacks_in_any_order_bring_them_again_in_theirs(streams: Streams, order: tuple[int, ...]) -> None:
    """The emulator brings them in the order of the nacks."""
    await _subscribe(streams)
    await _publish(streams, *_of_key("k", 3))
    stream = await streams.open()
    first = await stream.take(3)
    await stream.nack([first[ordinal] for ordinal in order])
    assert await stream.take_texts(3) == _of_key("k", 3)
    await stream.has_no_more()


async def test_a_nack_takes_back_the_acks_of_later_messages(streams: Streams) -> None:
    await _subscribe(streams)
    await _publish(streams, *_of_key("k", 3))
    stream = await streams.open()
    first = await stream.take(3)
    await stream.ack(first[1:])
    await stream.nack(first[:1])
    again = await stream.take(3)
    assert [m.text for m in again] == _of_key("k", 3)
    await stream.ack(again)
    await eventually(lambda: _all_acked(streams))


async def test_the_end_of_a_deadline_brings_the_key_again_in_order(streams: Streams) -> None:
    await _subscribe(streams)
    await _publish(streams, *_of_key("k", 3))
    stream = await streams.open()
    first = await stream.take(3)
    await stream.modify(first[:1], 1)
    assert await stream.take_texts(3) == _of_key("k", 3)


async def test_a_key_that_waits_holds_no_other(streams: Streams) -> None:
    await _subscribe(streams, retryPolicy={"minimumBackoff": "600s", "maximumBackoff": "600s"})
    await _publish(streams, "k0", "k1")
    stream = await streams.open()
    await stream.nack((await stream.take(2))[:1])
    await stream.has_no_more()
    await _publish(streams, "k2", "j0")
    await streams.rest.publish("without key")
    came = await stream.take(2)
    assert {m.text for m in came} == {"j0", "without key"}
    await stream.ack(came)
    await _publish(streams, "j1")
    assert await stream.take_texts() == ["j1"]
    await stream.has_no_more()


async def test_a_key_is_never_on_two_streams(streams: Streams) -> None:
    """Although the one that has it has no room, and the other has."""
    await _subscribe(streams)
    await _publish(streams, "k0")
    full = await streams.open(max_outstanding_messages=1)
    [k0] = await full.take()
    free = await streams.waiting()
    await _publish(streams, "k1", "k2", "j0")
    assert await free.take_texts() == ["j0"]
    await free.has_no_more()
    assert await streams.rest.pull() == []
    await full.ack([k0])
    await eventually(lambda: len(full.received) + len(free.received) >= 3)
    [k1] = [m for m in streams.of_all() if m.text == "k1"]
    await (full if k1 in full.received else free).ack([k1])
    await eventually(lambda: _has_come(streams, "k2"))
    assert [m.text for m in streams.of_all() if m.key == "k"] == ["k0", "k1", "k2"]


async def test_a_key_of_a_puller_is_not_on_streams(streams: Streams) -> None:
    await _subscribe(streams)
    await _publish(streams, "k0", "k1", "k2")
    pulled = await streams.rest.pull(max_messages=1)
    stream = await streams.waiting()
    await stream.has_no_more()
    await streams.rest.acknowledge(pulled)
    assert await stream.take_texts(2) == ["k1", "k2"]


async def test_a_key_of_a_stream_that_is_gone_comes_to_another_in_order_at_its_deadline(streams: Streams) -> None:
    await _subscribe(streams)
    await _publish(streams, *_of_key("k", 3))
    gone = await streams.open()
    had = await gone.take(3)
    other = await streams.waiting(connection=1)
    before = asyncio.get_running_loop().time()
    await streams.rest.modify_ack_deadline([{"ackId": m.ack_id} for m in had], 1)
    await gone.close()
    await _publish(streams, "k3")
    came = await other.take(3)
    assert came[0].at - before >= 1
    await other.ack(came)
    assert [m.text for m in came + await other.take()] == _of_key("k", 4)


# --- which stream -------------------------------------------------------------------------------------------


def _has_come(streams: Streams, text: str) -> bool:
    return text in [m.text for m in streams.of_all()]


async def _who_got(opened: list[Stream], text: str) -> Stream:
    """Acks it, too."""

    def having() -> list[Stream]:
        return [stream for stream in opened if text in (m.text for m in stream.received)]

    await eventually(having)
    [stream] = having()
    await stream.ack([m for m in stream.received if m.text == text])
    await stream.round_trip()
    return stream


async def test_a_key_goes_to_the_client_that_had_it_before(streams: Streams) -> None:
    await _subscribe(streams)
    opened = [await streams.waiting(client_id=name) for name in ("a", "b", "c")]
    first = {}
    for key in "klmn":
        await _publish(streams, f"{key}0")
        first[key] = await _who_got(opened, f"{key}0")
    for number in range(1, 6):
        for key in "nkml":
            await _publish(streams, f"{key}{number}")
            assert await _who_got(opened, f"{key}{number}") is first[key]


async def test_a_client_that_comes_again_gets_its_keys_again(streams: Streams) -> None:
    await _subscribe(streams)
    names = ("a", "b")
    opened = [await streams.waiting(client_id=name) for name in names]
    first = {}
    for key in "klmnopqr":
        await _publish(streams, f"{key}0")
        first[key] = opened.index(await _who_got(opened, f"{key}0"))
    for number, name in enumerate(names):
        await opened[number].close()
        opened[number] = await streams.waiting(client_id=name)
    for key in "klmnopqr":
        await _publish(streams, f"{key}1")
        assert opened.index(await _who_got(opened, f"{key}1")) == first[key]


async def test_a_key_goes_elsewhere_if_its_client_has_no_capacity(streams: Streams) -> None:
    await _subscribe(streams)
    opened = [await streams.waiting(client_id=name, max_outstanding_messages=2) for name in ("a", "b")]
    await _publish(streams, "k0")
    had = await _who_got(opened, "k0")
    [other] = [stream for stream in opened if stream is not had]
    for key in "lmnopqrstu":
        await _publish(streams, f"{key}0")
        await eventually(partial(_has_come, streams, f"{key}0"))
        if len(had.outstanding) == 2:
            break
        await other.ack(list(other.outstanding.values()))
        await other.round_trip()
    assert len(had.outstanding) == 2
    await other.ack(list(other.outstanding.values()))
    await _publish(streams, "k1")
    assert await _who_got(opened, "k1") is other


async def test_many_keys_are_worked_off_by_two_streams_in_order(streams: Streams) -> None:
    """With nacks in between; the reference tells what may come to whom."""
    await _subscribe(streams)
    chosen = random.Random(5)
    reference = Reference(ordered=True)
    keys = [f"key{n}" for n in range(20)]
    for number in range(10):
        for key in keys:
            text = f"{key}-{number}"
            [message_id] = await streams.rest.publish(message(text, orderingKey=key))
            reference.published(message_id, text, key)

    faults: list[AssertionError] = []
    opened = [
        await streams.open(
            max_outstanding_messages=15, on_messages=partial(_check, reference, f"stream {n}", faults)
        )
        for n in range(2)
    ]

    async def settle(stream: Stream, came: Received) -> None:
        if not reference.has(came.ack_id):
            return  # an earlier one was nacked meanwhile
        if chosen.random() < 0.1:
            reference.nacked([came.ack_id])
            await stream.nack([came])
        else:
            reference.acked([came.ack_id])
            await stream.ack([came])

    async def work(stream: Stream) -> None:
        done = 0
        while not reference.all_acked() and not faults:
            if done == len(stream.received):
                await asyncio.sleep(0.002)
            while done < len(stream.received):
                await settle(stream, stream.received[done])
                done += 1

    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.gather(*map(work, opened))
    assert not faults, faults
    assert all(stream.received for stream in opened)
    await eventually(lambda: _all_acked(streams))


def _check(reference: Reference, name: str, faults: list[AssertionError], came: list[Received]) -> None:
    try:
        for each in came:
            reference.delivered(name, each.message_id, each.ack_id, each.text)
    except AssertionError as fault:
        faults.append(fault)
