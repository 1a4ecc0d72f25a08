"""What is retracted is not handed out again, and how it stood is told (J6)."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from broker.core.acking.delivery_attempts import acknowledge_in_order
from broker.core.backlog.outcome import Outcome
from broker.core.log.messages import append_messages, encode_messages, encode_with_gaps
from broker.db.driver.hot_connection import HotConnection
from broker.features.retraction.removal import Asked, Done, retract
from broker.features.retraction.retraction import StateWhenRetracted
from broker.model.delivery import Delivery
from broker.model.errors import Aborted
from broker.model.journal import NOBODY
from broker.model.retry_policy import RetryPolicy
from tests.features.transforms.test_gaps import published
from tests.fixtures.log import ACK_DEADLINE, SECOND, Log, texts
from tests.interleavings.steps import open_transaction, until_waiting

RETRACTED, AGAIN = Outcome.RETRACTED, Outcome.ALREADY_RETRACTED
NEVER_DELIVERED, RETURNED, OUTSTANDING, SETTLED = StateWhenRetracted


async def _retract(
    log: Log, *seqs: int, connection: HotConnection | None = None, after: timedelta = SECOND
) -> tuple[Sequence[Outcome], Sequence[StateWhenRetracted | None]]:
    """What became of each, and how it stood with the subscription."""
    ids = [(log.shard_id, seq) for seq in seqs]
    asked = Asked(ids=ids, author=NOBODY, now=log.start + after)
    if connection is not None:
        done = await retract(connection, asked)
    else:
        async with open_transaction(log.database) as session:
            done = await retract(session, asked)
    return [done.outcomes[id_] for id_ in ids], [_state(log, done, id_) for id_ in ids]


async def _ack_in_order(log: Log, delivery: Delivery) -> None:
    async with log.session() as session:
        acks = {log.name(delivery): set(range(len(delivery.messages)))}
        await acknowledge_in_order(session, shard_id=log.shard_id, acks=acks, exactly_once=set(), now=log.start)


def _state(log: Log, done: Done, id_: tuple[int, int]) -> StateWhenRetracted | None:
    return done.states.get(log.subscription.name, {}).get(id_)


@pytest.mark.parametrize("attributes", [False, True])
@pytest.mark.parametrize("gone", ["a", "c", "f", "abc", "def", "bd", "ace", "abcdef"])
async def test_what_is_retracted_leaves_its_batch_and_the_others_stay(
    log: Log, gone: str, attributes: bool
) -> None:
    messages = [message for message in published("abcdef", attributes=attributes) if message is not None]
    async with log.session() as session:
        batches = [encode_messages(messages, ['{"shared": "x"}'] * 6 if attributes else ())]
        await append_messages(session, shard_id=log.shard_id, requests=batches, now=log.start)
    before = await log.rows("SELECT seq, data, attributes, size FROM messages ORDER BY seq")
    outcomes, states = await _retract(log, *("abcdef".index(each) + 1 for each in gone))
    assert {*outcomes} == {RETRACTED}
    assert {*states} == {NEVER_DELIVERED}
    after = await log.rows("SELECT seq, data, attributes, size FROM messages ORDER BY seq")
    assert [row[:3] for row in after] == [row[:3] for row in before if row[1].decode() not in gone]
    if attributes:
        assert all("shared" in row[2] for row in after)
    sizes = await log.rows("SELECT sum(size) FROM message_batches")
    each = 1 + len('{"a": "b"}') * attributes
    assert (sizes[0][0] or 0) == each * (6 - len(gone))
    assert await log.pull_texts() == [each for each in "abcdef" if each not in gone]
    await log.publish("after")
    assert await log.pull_texts() == ["after"]


async def test_how_each_stood_is_said_and_nothing_comes_again(log: Log) -> None:
    """1 acked, 2 out, 3 given back, 4 and 5 never handed out."""
    await log.publish(*"abcde")
    [delivery] = await log.pull(3)
    await log.acknowledge(delivery, [0])
    await log.nack(delivery, [2])
    outcomes, states = await _retract(log, 1, 2, 3, 4, 7)
    assert outcomes == [RETRACTED] * 4 + [Outcome.UNKNOWN]
    assert states == [
        *(
            SETTLED,
            OUTSTANDING,
            RETURNED,
            NEVER_DELIVERED,
        ),
        None,
    ]
    assert await log.pull_texts(now=log.start + SECOND) == ["e"]
    assert await log.acknowledge(delivery, [1]) == set()  # who has it may ack it
    late = log.start + 3 * ACK_DEADLINE
    assert await log.pull_texts(now=late) == ["e"]
    assert await _retract(log, 1, 2, 3, 4) == ([AGAIN] * 4, states[:4])


async def test_what_is_out_does_not_come_again_when_its_deadline_passes(log: Log) -> None:
    await log.publish(*"ab")
    await log.pull()
    assert await _retract(log, 1) == ([RETRACTED], [OUTSTANDING])
    assert await log.pull_texts(now=log.start + ACK_DEADLINE + SECOND) == ["b"]
    [rows] = [await log.rows("SELECT event FROM delivery_journal ORDER BY time")]
    assert rows == [("RETRACTED",)]


async def test_a_key_goes_on_without_the_retracted_message(log: Log) -> None:
    log.subscription = replace(log.subscription, enable_message_ordering=True)
    await log.execute("UPDATE subscriptions SET enable_message_ordering = true")
    policy = RetryPolicy(minimum_backoff=100 * SECOND, maximum_backoff=100 * SECOND)
    await log.publish(*"abc", key="k")
    [delivery] = await log.pull(1, ordered=True)
    await log.nack(delivery, retry_policy=policy)
    assert await log.pull(ordered=True, now=log.start + SECOND, retry_policy=policy) == []
    assert await _retract(log, 1, 2) == (
        [RETRACTED] * 2,
        [RETURNED, NEVER_DELIVERED],
    )
    later = log.start + 2 * SECOND
    assert await log.pull_texts(ordered=True, now=later, retry_policy=policy) == ["c"]


async def test_a_key_waits_for_whoever_has_the_retracted_message(log: Log) -> None:
    await log.execute("UPDATE subscriptions SET enable_message_ordering = true")
    await log.publish(*"abc", key="k")
    await log.pull(1, ordered=True)
    assert await _retract(log, 1, 2) == (
        [RETRACTED] * 2,
        [OUTSTANDING, NEVER_DELIVERED],
    )
    assert await log.pull(ordered=True, now=log.start + SECOND) == []
    assert await log.pull_texts(ordered=True, now=log.start + ACK_DEADLINE + SECOND) == ["c"]


async def test_the_rest_of_a_run_that_came_back_is_delivered_in_order(log: Log) -> None:
    await log.execute("UPDATE subscriptions SET enable_message_ordering = true")
    await log.publish(*"abcd", key="k")
    [delivery] = await log.pull(3, ordered=True)
    await log.nack(delivery)
    assert await _retract(log, 2) == ([RETRACTED], [RETURNED])
    got = []
    for second in range(1, 4):
        for each in await log.pull(1, ordered=True, now=log.start + second * SECOND):
            got += texts([each])
            await _ack_in_order(log, each)
    assert got == ["a", "c", "d"]


async def test_what_was_retracted_does_not_come_back_by_a_seek(log: Log) -> None:
    await log.publish(*"ab")
    await log.acknowledge_many(*await log.pull())
    assert await _retract(log, 1) == ([RETRACTED], [SETTLED])
    await log.execute("UPDATE cursors SET next_seq = 1, next_publish_time = '2000-01-01Z'")
    assert await log.pull_texts(now=log.start + SECOND) == ["b"]


async def test_what_the_filter_leaves_out_was_in_time(log: Log) -> None:
    await log.execute("UPDATE subscriptions SET filter = 'x', filter_path = 'exists($.env)'")
    await log.publish(*"ab")
    assert await log.pull(filter_path="exists($.env)") == []
    assert await _retract(log, 1) == ([RETRACTED], [NEVER_DELIVERED])


async def test_what_a_transform_dropped_is_not_retained_and_older_messages_are_not_the_subscriptions(
    log: Log,
) -> None:
    async with log.session() as session:
        request = encode_with_gaps(published("a.c"))
        await append_messages(session, shard_id=log.shard_id, requests=[request], now=log.start)
    await log.execute("UPDATE cursors SET first_seq = 3, next_seq = 3")
    assert await _retract(log, 1, 2, 3) == (
        [RETRACTED, Outcome.NOT_RETAINED, RETRACTED],
        [None, None, NEVER_DELIVERED],
    )


async def test_a_straggler_is_retracted(log: Log) -> None:
    await log.publish(*"ab")
    await log.pull()
    await log.execute("INSERT INTO straggler_batches SELECT * FROM message_batches")
    await log.execute("DELETE FROM message_batches")
    assert await _retract(log, 1) == ([RETRACTED], [OUTSTANDING])
    assert await log.pull_texts(now=log.start + ACK_DEADLINE + SECOND) == ["b"]


async def test_two_that_retract_at_once_retract_it_once(log: Log) -> None:
    await log.publish("a")
    async with open_transaction(log.database) as first:
        assert await _retract(log, 1, connection=first) == ([RETRACTED], [NEVER_DELIVERED])
        second = asyncio.create_task(_retract(log, 1))
        await until_waiting(log.database)
    assert await second == ([AGAIN], [NEVER_DELIVERED])


async def test_of_two_at_once_where_nobody_subscribes_one_tries_again(log: Log) -> None:
    await log.publish("a")
    await log.execute("DELETE FROM cursors")
    async with open_transaction(log.database) as first:
        assert await _retract(log, 1, connection=first) == ([RETRACTED], [None])
        second = asyncio.create_task(_retract(log, 1))
        await until_waiting(log.database)
    with pytest.raises(Aborted):
        await second
    assert await _retract(log, 1) == ([AGAIN], [None])
