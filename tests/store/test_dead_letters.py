"""Messages that failed too often are published on the dead-letter topic, once, and leave (A5)."""

import asyncio
from dataclasses import replace

import msgspec
import pytest

from broker.domain.message import NewMessage
from broker.domain.subscription import DeadLetterPolicy, Subscription
from broker.store import topics
from broker.store.dead_letters import (
    DeadLetterTopicClosed,
    Forwarded,
    find_dead_letter_work,
    forward_dead_letters,
    retry_exhausted_attempts,
)
from broker.store.messages import append_messages, encode_messages
from tests.fixtures.log import ACK_DEADLINE, Log, make_log, texts
from tests.store.interleavings.steps import open_transaction, until_waiting

ATTEMPTS = 5


@pytest.fixture
async def dead(log: Log) -> Log:
    """The dead-letter topic, with a subscription; `log`'s subscription has the policy."""
    dead = await make_log(log.database, log.start, "dead")
    await log.execute(
        f"UPDATE subscriptions SET dead_letter_topic = '{dead.topic.name}', max_delivery_attempts = {ATTEMPTS}"
        f" WHERE subscription_id = {log.subscription.subscription_id}"
    )
    return dead


def subscription(log: Log, dead: Log) -> Subscription:
    policy = DeadLetterPolicy(dead_letter_topic=dead.topic.name, max_delivery_attempts=ATTEMPTS)
    return replace(log.subscription, dead_letter_policy=policy, dead_letter_topic_id=dead.topic.topic_id)


async def fail(log: Log, times: int = ATTEMPTS) -> None:
    """Deliver everything so often, and nack it each time."""
    for number in range(1, times + 1):
        for delivery in await log.pull(max_attempts=ATTEMPTS):
            assert delivery.attempt_number == number
            await log.nack(delivery)


async def forward(log: Log, dead: Log) -> Forwarded:
    async with log.session() as session:
        return await forward_dead_letters(
            session, subscription=subscription(log, dead), shard_id=log.shard_id, topic=dead.topic, now=log.start
        )


async def work(log: Log) -> list[tuple[str, int]]:
    async with log.session() as session:
        return await find_dead_letter_work(session, now=log.start)


async def test_a_message_is_forwarded_after_its_last_attempt_with_where_it_came_from(log: Log, dead: Log) -> None:
    message = NewMessage(data=b"a", attributes={"k": "v"}, ordering_key="key")
    async with log.session() as session:
        batch = encode_messages([message])
        await append_messages(session, shard_id=log.shard_id, requests=[batch], now=log.start)
    await fail(log)
    assert await log.pull(max_attempts=ATTEMPTS) == [], "there is no sixth delivery"
    assert await work(log) == [(log.subscription.name, log.shard_id)]
    assert (await forward(log, dead)).count == 1
    [letter] = (await dead.pull())[0].messages
    assert (letter.data, letter.ordering_key) == (b"a", "key")
    assert msgspec.json.decode(letter.attributes) == {
        "k": "v",
        "CloudPubSubDeadLetterSourceDeliveryCount": "5",
        "CloudPubSubDeadLetterSourceSubscription": "t-sub",
        "CloudPubSubDeadLetterSourceSubscriptionProject": "p",
        "CloudPubSubDeadLetterSourceTopicPublishTime": log.start.isoformat(timespec="milliseconds"),
    }
    await dead.execute(f"DELETE FROM delivery_attempts WHERE subscription_id = {dead.subscription.subscription_id}")
    assert await log.attempts() == []
    assert await work(log) == []


async def test_the_forwarder_finds_what_nobody_pulls_any_more(log: Log, dead: Log) -> None:
    await log.publish("a", "b")
    await fail(log)
    assert [status for status, *_ in await log.attempts()] == ["nacked"]
    assert len(await work(log)) == 1
    assert (await forward(log, dead)).count == 2
    assert await dead.pull_texts() == ["a", "b"]


async def test_four_failures_are_not_enough(log: Log, dead: Log) -> None:
    await log.publish("a")
    await fail(log, ATTEMPTS - 1)
    assert await work(log) == []
    assert (await forward(log, dead)).count == 0
    assert await log.pull_texts(max_attempts=ATTEMPTS) == ["a"]


async def test_only_the_messages_that_fail_go(log: Log, dead: Log) -> None:
    await log.publish("good", "bad")
    for _ in range(ATTEMPTS):
        [delivery] = await log.pull(max_attempts=ATTEMPTS)
        good = [n for n, m in enumerate(delivery.messages) if m.data == b"good"]
        await log.acknowledge(delivery, good)
        await log.nack(delivery)
    await forward(log, dead)
    assert await dead.pull_texts() == ["bad"]


async def test_an_ack_that_comes_late_still_saves_a_message(log: Log, dead: Log) -> None:
    await log.publish("a")
    await fail(log, ATTEMPTS - 1)
    [last] = await log.pull(max_attempts=ATTEMPTS)
    assert await log.pull(now=log.start + ACK_DEADLINE, max_attempts=ATTEMPTS) == []
    assert await log.acknowledge(last) == set()
    assert (await forward(log, dead)).count == 0


async def test_a_deleted_dead_letter_topic_loses_nothing(log: Log, dead: Log) -> None:
    await log.publish("a")
    await fail(log)
    async with log.database.transaction() as connection:
        await topics.delete_topic(connection, topic=dead.topic)
    with pytest.raises(DeadLetterTopicClosed):
        await forward(log, dead)
    async with log.session() as session:
        await retry_exhausted_attempts(
            session, subscription=subscription(log, dead), shard_id=log.shard_id, now=log.start
        )
    [again] = await log.pull()
    assert (texts([again]), again.attempt_number) == (["a"], 6)


async def test_two_forwarders_at_once_forward_each_message_once(log: Log, dead: Log) -> None:
    await log.publish("a", "b")
    await fail(log)
    async with open_transaction(log.database) as holding:
        # Another's publish on the dead-letter shard: the first forwarder locks its rows and waits for the head.
        await dead.publish("other", connection=holding)
        first = asyncio.create_task(forward(log, dead))
        await until_waiting(log.database)
        assert (await forward(log, dead)).count == 0
    assert (await first).count == 2
    assert await dead.pull_texts() == ["other", "a", "b"]


async def test_large_dead_letters_go_in_several_transactions(
    log: Log, dead: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.store.dead_letters._MAX_BYTES", 2_500)
    await log.publish(*["x" * 1000] * 10)
    await fail(log)
    counts = []
    more = True
    while more:
        forwarded = await forward(log, dead)
        counts.append(forwarded.count)
        more = forwarded.more
    assert sum(counts) == 10
    assert max(counts) <= 3
    assert len(await dead.pull_texts()) == 10
