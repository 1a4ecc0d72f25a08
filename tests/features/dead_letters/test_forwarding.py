"""Messages that failed too often are published on the dead-letter topic, once, and leave (A5)."""

import asyncio
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec
import pytest

from broker.core.catalog import topic_rows as topics
from broker.core.log.appending import ShardClosed
from broker.core.log.messages import append_messages, encode_messages
from broker.features.dead_letters.forwarding.dead_letter_work import find_dead_letter_work
from broker.features.dead_letters.forwarding.forwarding import (
    AT_ONCE,
    MAX_DEAD_LETTERS,
    Forwarded,
    forward_dead_letters,
    retry_exhausted_attempts,
)
from broker.model.message import NewMessage
from broker.model.message_id import message_id
from broker.model.subscription import DeadLetterPolicy, Subscription
from tests.fixtures.dead_letters import packed_for
from tests.fixtures.log import ACK_DEADLINE, Log, make_log, texts
from tests.interleavings.steps import open_transaction, until_waiting

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


async def forward(log: Log, dead: Log, now: datetime | None = None, **options: Any) -> Forwarded:
    async with log.session() as session:
        return await forward_dead_letters(
            session,
            subscription=subscription(log, dead),
            shard_id=log.shard_id,
            prepare=packed_for(dead.topic),
            now=now or log.start,
            **options,
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
    [dead_letter] = (await dead.pull())[0].messages
    assert (dead_letter.data, dead_letter.ordering_key) == (b"a", "key")
    assert msgspec.json.decode(dead_letter.attributes) == {
        "k": "v",
        "CloudPubSubDeadLetterSourceDeliveryCount": "5",
        "CloudPubSubDeadLetterSourceSubscription": "t-sub",
        "CloudPubSubDeadLetterSourceSubscriptionProject": "p",
        "CloudPubSubDeadLetterSourceTopicPublishTime": log.start.isoformat(timespec="milliseconds"),
        "broker-source-message-id": message_id(log.shard_id, 1),
        "broker-dead-letter-reason": "nack",
    }
    await dead.execute(f"DELETE FROM delivery_attempts WHERE subscription_id = {dead.subscription.subscription_id}")
    assert await log.attempts() == []
    assert await work(log) == []


async def attributes_of_dead_letters(dead: Log) -> dict[str, dict[str, str]]:
    """By the data of the dead letters."""
    deliveries = await dead.pull()
    return {
        message.data.decode(): msgspec.json.decode(message.attributes)
        for delivery in deliveries
        for message in delivery.messages
    }


async def reasons(dead: Log) -> dict[str, str]:
    return {
        data: reported["broker-dead-letter-reason"]
        for data, reported in (await attributes_of_dead_letters(dead)).items()
    }


async def test_what_is_known_of_a_dead_letter_is_written_with_it(log: Log, dead: Log) -> None:
    """Attributes can be forged; the table is the broker's own."""
    await log.publish("a", "b")
    await fail(log)
    assert (await forward(log, dead)).reasons == {"nack": 2}
    assert await log.rows(
        "SELECT shard_id, seq, source_shard_id, source_seq, source_publish_time, source_topic, subscription_id,"
        " subscription, delivery_attempts, reason"
        " FROM dead_letters JOIN messages USING (shard_id, publish_time, seq) ORDER BY seq"
    ) == [
        (
            dead.shard_id,
            seq,
            log.shard_id,
            seq,
            log.start,
            log.topic.name,
            log.subscription.subscription_id,
            log.subscription.name,
            ATTEMPTS,
            "nack",
        )
        for seq in (1, 2)
    ]


async def test_attributes_that_are_called_like_the_broker_s_are_not_believed(log: Log, dead: Log) -> None:
    forged = {"broker-source-message-id": "1", "broker-dead-letter-reason": "reject"}
    forged |= {"CloudPubSubDeadLetterSourceDeliveryCount": "99", "broker-other": "kept"}
    async with log.session() as session:
        batch = encode_messages([NewMessage(data=b"a", attributes=forged)])
        await append_messages(session, shard_id=log.shard_id, requests=[batch], now=log.start)
    await fail(log)
    await forward(log, dead)
    reported = (await attributes_of_dead_letters(dead))["a"]
    assert (reported["broker-source-message-id"], reported["broker-dead-letter-reason"]) == (
        message_id(log.shard_id, 1),
        "nack",
    )
    assert (reported["CloudPubSubDeadLetterSourceDeliveryCount"], reported["broker-other"]) == ("5", "kept")


async def test_a_message_with_as_many_attributes_as_there_may_be_becomes_a_dead_letter(log: Log, dead: Log) -> None:
    own = {f"{n}".ljust(256, "k"): "v" * 1_024 for n in range(100)}
    async with log.session() as session:
        batch = encode_messages([NewMessage(data=b"a", attributes=own)])
        await append_messages(session, shard_id=log.shard_id, requests=[batch], now=log.start)
    await fail(log)
    await forward(log, dead)
    reported = (await attributes_of_dead_letters(dead))["a"]
    assert {key: reported[key] for key in own} == own
    assert len(reported) == 106


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("claimed", [False, True], ids=["marked by the forwarder", "marked by a claim"])
async def test_the_reason_is_how_the_last_attempt_ended(log: Log, dead: Log, ordered: bool, claimed: bool) -> None:
    await log.publish("a", key="k" if ordered else None)
    for _ in range(ATTEMPTS - 1):
        [delivery] = await log.pull(max_attempts=ATTEMPTS, ordered=ordered)
        await log.nack(delivery, failure="push 503")
    await log.pull(max_attempts=ATTEMPTS, ordered=ordered)
    after = log.start + ACK_DEADLINE
    if claimed:
        assert await log.pull(max_attempts=ATTEMPTS, ordered=ordered, now=after) == []
    assert (await forward(log, dead, now=after)).reasons == {"deadline": 1}
    assert await reasons(dead) == {"a": "deadline"}


async def test_messages_of_one_response_fail_each_in_its_own_way(log: Log, dead: Log) -> None:
    await log.publish("nacked", "refused", "silent")
    await fail(log, ATTEMPTS - 1)
    [delivery] = await log.pull(max_attempts=ATTEMPTS)
    await log.nack(delivery, [0])
    await log.nack(delivery, [1], failure="push 503")
    after = log.start + ACK_DEADLINE
    forwarded = await forward(log, dead, now=after)
    assert forwarded.reasons == {"nack": 1, "push 503": 1, "deadline": 1}
    assert await reasons(dead) == {"nacked": "nack", "refused": "push 503", "silent": "deadline"}


async def test_messages_of_a_key_that_fail_together_are_told_why_each(log: Log, dead: Log) -> None:
    """A nack of the first takes the others back as well."""
    await log.publish("k1", "k2", key="k")
    [run] = await log.pull(max_attempts=1, ordered=True)
    await log.nack(run, [0], failure="push 503")
    for _ in range(2):
        assert await log.pull(max_attempts=1, ordered=True) == []
        assert (await forward(log, dead)).reasons == {"push 503": 1}
    assert await reasons(dead) == {"k1": "push 503", "k2": "push 503"}


async def test_what_an_earlier_release_has_nacked_is_told_as_unknown(log: Log, dead: Log) -> None:
    """Its brokers may run beside ours, and do not write how attempts end."""
    await log.publish("a")
    await fail(log, ATTEMPTS - 1)
    [last] = await log.pull(max_attempts=ATTEMPTS)
    await log.nack(last, failure=None)
    assert (await forward(log, dead)).reasons == {"unknown": 1}


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
    with pytest.raises(ShardClosed):
        await forward(log, dead)
    assert await log.rows("SELECT 1 FROM dead_letters") == []
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
    monkeypatch.setattr("broker.features.dead_letters.forwarding.forwarding._MAX_BYTES", 2_500)
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


async def test_many_dead_letters_go_in_several_transactions_too(
    log: Log, dead: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many at once would keep all other tenants of the process waiting."""
    monkeypatch.setattr("broker.features.dead_letters.forwarding.forwarding.MAX_DEAD_LETTERS", 40)
    sent = {f"m{number}" for number in range(100)}
    await log.publish(*sent)
    await fail(log)
    rounds = [await forward(log, dead) for _ in range(3)]
    assert [(each.count, each.more) for each in rounds] == [(40, True), (40, True), (20, False)]
    arrived = [text for delivery in await dead.pull() for text in texts([delivery])]
    assert sorted(arrived) == sorted(sent)


async def test_each_step_that_makes_many_dead_letters_waits_for_its_turn_and_none_makes_all(
    log: Log, dead: Log
) -> None:
    await log.publish(*map(str, range(2 * AT_ONCE + 1)))
    await fail(log)
    costs: list[int] = []

    async def turn(cost: int) -> None:
        costs.append(cost)

    assert (await forward(log, dead, turn=turn)).count == 2 * AT_ONCE + 1
    assert len(costs) == 3
    assert costs[0] > costs[2] > 0


async def test_a_part_of_a_batch_leaves_the_rest_for_the_next(log: Log, dead: Log) -> None:
    count = MAX_DEAD_LETTERS // 4 + 1
    await log.publish(*map(str, range(count)))
    await fail(log)
    done = await forward(log, dead, part=4)
    assert (done.count, done.more) == (MAX_DEAD_LETTERS // 4, True)
    done = await forward(log, dead, part=4)
    assert (done.count, done.more) == (1, False)
    assert sorted(map(int, texts(await dead.pull(1_000)))) == list(range(count))


async def test_dead_letters_with_keys_and_without_keep_their_order(log: Log, dead: Log) -> None:
    """What follows each other with one key is made together."""
    for key in ("a", "", "b", "", ""):
        await log.publish(f"of {key!r}", key=key)
    await fail(log)
    await forward(log, dead)
    dead_letters = [(m.data.decode(), m.ordering_key) for each in await dead.pull() for m in each.messages]
    assert dead_letters == [("of 'a'", "a"), ("of ''", None), ("of 'b'", "b"), ("of ''", None), ("of ''", None)]
