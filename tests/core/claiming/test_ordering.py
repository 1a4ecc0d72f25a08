"""Ordering keys: messages of one key come in publish order, one run of them at a time (A6)."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from broker.core.acking.delivery_attempts import AckedInOrder, acknowledge_in_order, release_attempts
from broker.core.backlog.seeking import cursors
from broker.core.backlog.seeking import snapshot_rows as snapshots
from broker.core.backlog.seeking.cursors import ShardSeek, read_positions
from broker.core.claiming.transaction.request import Claimed, Quiet
from broker.core.log.messages import append_messages, encode_messages
from broker.features.dead_letters.forwarding.dead_letter_work import find_dead_letter_work
from broker.features.dead_letters.forwarding.forwarding import forward_dead_letters
from broker.model.delivery import Delivery
from broker.model.message import NewMessage
from broker.model.retry_policy import RetryPolicy
from broker.model.subscription import DeadLetterPolicy
from tests.fixtures.dead_letters import packed_for
from tests.fixtures.log import ACK_DEADLINE, SECOND, Log, add_subscription, make_log, texts

ALL = 1000


async def publish(log: Log, *data: str, now: datetime | None = None) -> None:
    """Each text under its first letter as the key; those in capitals have none."""
    for text in data:
        await log.publish(text, now=now, key=text[0] if text[0].islower() else "")


async def pull(log: Log, max_messages: int = ALL, **options: Any) -> list[Delivery]:
    return await log.pull(max_messages, ordered=True, **options)


async def pull_texts(log: Log, max_messages: int = ALL, **options: Any) -> list[str]:
    return texts(await pull(log, max_messages, **options))


async def acknowledge(
    log: Log,
    *deliveries: Delivery,
    ordinals: set[int] | None = None,
    exactly_once: bool = False,
    after: timedelta = 0 * SECOND,
) -> AckedInOrder:
    async with log.session() as session:
        return await acknowledge_in_order(
            session,
            shard_id=log.shard_id,
            acks={log.name(d): ordinals or set(range(len(d.messages))) for d in deliveries},
            exactly_once={log.subscription.subscription_id} if exactly_once else (),
            now=log.start + after,
        )


async def test_one_response_may_carry_several_messages_of_a_key_in_order(log: Log) -> None:
    await publish(log, "a1", "b1", "a2", "X", "b2", "a3")
    deliveries = await pull(log)
    assert [texts([delivery]) for delivery in deliveries] == [["X"], ["a1", "a2", "a3"], ["b1", "b2"]]


async def test_claims_that_hand_nothing_out_say_when_the_next_redelivery_is_due(log: Log) -> None:
    """Whoever asks after another process was killed has nothing else to go by."""
    quiet = Claimed([()], Quiet(log.start + ACK_DEADLINE))
    await publish(log, "a1", "b1")
    _, b1 = await pull(log)
    await publish(log, "a2")
    assert await log.claim(ordered=True) == quiet, "this one passed a2"
    await acknowledge(log, b1)
    assert await log.claim(ordered=True) == quiet, "this one cleared b away"
    assert len(await log.attempts()) == 1, "nothing of b is left"


async def test_a_key_waits_until_all_that_is_out_of_it_is_acked(log: Log) -> None:
    await publish(log, "a1", "a2", "a3")
    [run] = await pull(log, 2)
    await publish(log, "a4")
    assert await pull(log) == []
    await acknowledge(log, run, ordinals={0})
    assert await pull(log) == []
    await acknowledge(log, run, ordinals={1})
    assert await pull_texts(log) == ["a3", "a4"]


async def test_a_key_that_waits_holds_nobody_else(log: Log) -> None:
    await publish(log, "a1", *(f"a{n}" for n in range(2, 40)), "b1", "X")
    await pull(log, 1)
    assert sorted(await pull_texts(log, 2)) == ["X", "b1"]


async def test_a_key_is_free_again_once_nothing_waits(log: Log) -> None:
    await publish(log, "a1")
    await acknowledge(log, *await pull(log))
    assert await pull(log) == []
    assert await log.attempts() == []
    await publish(log, "a2")
    assert await pull_texts(log) == ["a2"]


async def test_many_settled_keys_hold_up_no_pull_and_go_with_the_pulls(log: Log) -> None:
    batch = encode_messages([NewMessage(data=b"m", ordering_key=f"k{n}") for n in range(900)])
    async with log.session() as session:
        await append_messages(session, shard_id=log.shard_id, requests=[batch], now=log.start)
    await acknowledge(log, *await pull(log))
    await publish(log, "a1")
    assert await pull_texts(log, 1) == ["a1"]
    for _ in range(5):
        await pull(log, 1)
    assert len(await log.attempts()) == 1


async def test_two_pulls_of_one_claim_never_share_a_key(log: Log) -> None:
    await publish(log, "a1", "a2", "a3", "b1", "b2")
    one, other = (await log.claim(2, 10, ordered=True)).deliveries
    assert (texts(one), texts(other)) == (["a1", "a2"], ["b1", "b2"])
    await acknowledge(log, *one)
    assert await pull_texts(log) == ["a3"]


async def test_a_nack_brings_back_all_later_messages_of_the_key_in_order(log: Log) -> None:
    await publish(log, "a1", "a2", "a3", "a4")
    [run] = await pull(log)
    await acknowledge(log, run, ordinals={0, 3})
    await log.nack(run, [1])
    await publish(log, "a5")
    [again] = await pull(log)
    assert (texts([again]), again.attempt_number) == (["a2", "a3", "a4"], 2)
    assert (await acknowledge(log, run, ordinals={2})).stale == {log.name(run): {2}}
    await acknowledge(log, again)
    assert await pull_texts(log) == ["a5"]


async def test_what_comes_before_a_nacked_message_stays_out(log: Log) -> None:
    await publish(log, "a1", "a2", "a3")
    [run] = await pull(log)
    await log.nack(run, [1])
    assert await pull(log) == []
    await acknowledge(log, run, ordinals={0})
    assert await pull_texts(log) == ["a2", "a3"]


async def test_a_retry_delay_is_kept_when_earlier_messages_are_acked_meanwhile(log: Log) -> None:
    policy = RetryPolicy(minimum_backoff=8 * SECOND, maximum_backoff=8 * SECOND)
    await publish(log, "a1", "a2")
    [run] = await pull(log, retry_policy=policy)
    await log.nack(run, [1], retry_policy=policy)
    await acknowledge(log, run, ordinals={0}, after=SECOND)
    assert await pull(log, now=log.start + 7 * SECOND, retry_policy=policy) == []
    assert await pull_texts(log, now=log.start + 8 * SECOND, retry_policy=policy) == ["a2"]


async def test_what_expires_comes_back_in_order(log: Log) -> None:
    await publish(log, "a1", "a2", "a3")
    [run] = await pull(log)
    await acknowledge(log, run, ordinals={0, 2})
    assert await pull(log, now=log.start + ACK_DEADLINE - SECOND) == []
    assert await pull_texts(log, now=log.start + ACK_DEADLINE) == ["a2", "a3"]


async def test_messages_of_a_key_share_the_deadline_of_the_first_that_is_out(log: Log) -> None:
    await publish(log, "a1", "a2")
    [run] = await pull(log)
    assert await log.modify_ack_deadline(run, [1], log.start + 60 * SECOND) == set()
    assert await log.modify_ack_deadline(run, [0, 1], log.start + 30 * SECOND) == set()
    assert await pull(log, now=log.start + 29 * SECOND) == []
    assert await pull_texts(log, now=log.start + 30 * SECOND) == ["a1", "a2"]


async def test_attempts_are_counted_for_each_message(log: Log) -> None:
    await publish(log, "a1", "a2")
    [run] = await pull(log)
    await log.nack(run)
    [alone] = await pull(log, 1)
    assert (texts([alone]), alone.attempt_number) == (["a1"], 2)
    await log.nack(alone)
    [alone] = await pull(log)
    assert (texts([alone]), alone.attempt_number) == (["a1"], 3)
    await acknowledge(log, alone)
    [behind] = await pull(log)
    assert (texts([behind]), behind.attempt_number) == (["a2"], 2)


async def test_what_was_never_handed_out_does_not_count(log: Log) -> None:
    await publish(log, "a1", "a2")
    [run] = await pull(log)
    where = {"shard_id": log.shard_id, "subscription_id": log.subscription.subscription_id}
    async with log.session() as session:
        await release_attempts(session, **where, attempt_ids=[run.attempt_id], now=log.start)
    [again] = await pull(log)
    assert (texts([again]), again.attempt_number) == (["a1", "a2"], 1)


async def test_one_message_of_a_key_at_a_time(log: Log) -> None:
    await publish(log, "a1", "a2", "b1")
    runs = await pull(log, max_run=1)
    assert texts(runs) == ["a1", "b1"]
    await acknowledge(log, *runs)
    assert await pull_texts(log, max_run=1) == ["a2"]


async def test_exactly_once_refuses_an_ack_before_its_turn_for_now(log: Log) -> None:
    await publish(log, "a1", "a2", "a3")
    [run] = await pull(log, exactly_once=True)
    acked = await acknowledge(log, run, ordinals={0, 2}, exactly_once=True)
    assert (acked.stale, acked.out_of_order) == ({}, {log.name(run): {2}})
    acked = await acknowledge(log, run, ordinals={1, 2}, exactly_once=True)
    assert (acked.stale, acked.out_of_order) == ({}, {})
    assert acked.due == {log.subscription.subscription_id}


async def test_exactly_once_a_repeated_ack_succeeds_after_the_key_has_gone_on(log: Log) -> None:
    await publish(log, "a1", "a2")
    [run] = await pull(log, 1, exactly_once=True)
    await acknowledge(log, run, exactly_once=True)
    [_next] = await pull(log, exactly_once=True)
    assert (await acknowledge(log, run, exactly_once=True)).stale == {}


async def test_messages_too_old_are_not_waited_for(log: Log) -> None:
    await publish(log, "a1", "a2")
    [run] = await pull(log, 1)
    await publish(log, "a3", now=log.start + 10 * SECOND)
    await log.nack(run)
    late = {"now": log.start + 11 * SECOND, "retention": 5 * SECOND}
    assert await pull_texts(log, **late) == ["a3"]


async def test_a_filter_is_heeded_for_what_waits(log: Log) -> None:
    """Nothing of the key matches behind the message that is out, and the key comes free."""
    await publish(log, "a1", "a2")
    nothing = '$.x == "y"'
    [run] = await pull(log, 1)
    await acknowledge(log, run)
    assert await pull(log, filter_path=nothing) == []
    assert await log.attempts() == []


# --- dead letters -------------------------------------------------------------------------------------


async def test_a_message_given_up_lets_the_next_of_its_key_go_on(log: Log) -> None:
    dead = await make_log(log.database, log.start, "dead")
    policy = DeadLetterPolicy(dead_letter_topic=dead.topic.name, max_delivery_attempts=5)
    subscription = replace(log.subscription, dead_letter_policy=policy, dead_letter_topic_id=dead.topic.topic_id)
    await log.execute(
        f"UPDATE subscriptions SET dead_letter_topic = '{dead.topic.name}', max_delivery_attempts = 5"
        f" WHERE subscription_id = {log.subscription.subscription_id}"
    )
    await publish(log, "a1", "a2", "a3")
    for number in range(1, 6):
        [run] = await pull(log, max_attempts=5)
        assert run.attempt_number == number
        assert texts([run]) == (["a1", "a2", "a3"] if number == 1 else ["a1"]), "a failed message goes alone"
        await log.nack(run, [0])
    async with log.session() as session:
        assert await find_dead_letter_work(session, now=log.start) == [(log.subscription.name, log.shard_id)]
    assert await pull(log, max_attempts=5) == []
    async with log.session() as session:
        done = await forward_dead_letters(
            session,
            subscription=subscription,
            shard_id=log.shard_id,
            prepare=packed_for(dead.topic),
            now=log.start,
        )
    assert (done.count, done.more) == (1, False)
    [dead_letter] = (await dead.pull())[0].messages
    assert (dead_letter.data, dead_letter.ordering_key) == (b"a1", "a")
    [behind] = await pull(log, max_attempts=5)
    assert (texts([behind]), behind.attempt_number) == (["a2"], 2)


# --- seek and snapshots -------------------------------------------------------------------------------


async def seek(
    log: Log, *, to: datetime | int, replay: bool = False, subscription_id: int = 0, ordered: bool = True
) -> int:
    """Returns how many messages the seek says come again."""
    seek = ShardSeek(
        shard_id=log.shard_id,
        subscription_id=subscription_id or log.subscription.subscription_id,
        ordered=ordered,
        now=log.start,
        first_attempt_id=log.attempt_ids.take_parts(1, now=log.start)[0],
    )
    async with log.database.transaction() as connection:
        if isinstance(to, int):
            found = await cursors.seek_to_snapshot(connection, seek, snapshot_id=to)
        else:
            replay_since = log.start - timedelta(days=1) if replay else None
            found = await cursors.seek_to_time(connection, seek, time=to, replay_since=replay_since)
    assert found is not None
    return found.messages


async def a_second_each(log: Log) -> None:
    """a1, b1, a2, a3 and X are acked up to a1; a2 is out; a3 waits; the cursor has passed everything."""
    for number, text in enumerate(("a1", "b1", "a2", "a3", "X")):
        await publish(log, text, now=log.start + number * SECOND)
    first = await pull(log, 2, max_run=1)
    assert texts(first) == ["a1", "b1"]
    await acknowledge(log, *first)
    second = await pull(log, 3, max_run=1)
    assert sorted(texts(second)) == ["X", "a2"]
    await log.acknowledge(*[run for run in second if not run.ordered])


async def test_positions_count_what_waits_behind_a_key(log: Log) -> None:
    await a_second_each(log)
    async with log.database.connection() as connection:
        [position] = await read_positions(connection, subscription_id=log.subscription.subscription_id)
    assert (position.outstanding, position.unclaimed) == (2, 0)


async def test_a_seek_forward_acks_what_was_published_before(log: Log) -> None:
    await a_second_each(log)
    assert await seek(log, to=log.start + 3 * SECOND) == 1
    assert await pull_texts(log) == ["a3"]


async def test_a_seek_far_forward_acks_everything(log: Log) -> None:
    await a_second_each(log)
    await seek(log, to=log.start + 60 * SECOND)
    assert await pull(log) == []
    await publish(log, "a4", now=log.start + 61 * SECOND)
    assert await pull_texts(log, now=log.start + 61 * SECOND) == ["a4"]


async def test_a_seek_back_brings_back_acked_messages_in_order(log: Log) -> None:
    await a_second_each(log)
    await seek(log, to=log.start, replay=True)
    assert await pull_texts(log, 10) == ["X", "a1", "a2", "a3", "b1"]
    assert await pull(log) == []


async def test_a_seek_back_without_retained_messages_brings_back_what_is_unacked(log: Log) -> None:
    await a_second_each(log)
    await seek(log, to=log.start)
    runs = await pull(log)
    assert [(texts([run]), run.attempt_number) for run in runs] == [(["a2", "a3"], 1)]


async def test_leases_from_before_a_seek_ack_nothing(log: Log) -> None:
    await publish(log, "a1", "a2")
    [run] = await pull(log)
    await seek(log, to=log.start)
    assert (await acknowledge(log, run)).stale == {log.name(run): {0, 1}}
    assert await pull_texts(log) == ["a1", "a2"]


async def snapshot_of(log: Log) -> int:
    async with log.database.transaction() as connection:
        created = await snapshots.insert_snapshot(
            connection,
            name="projects/p/snapshots/s",
            labels={},
            subscription=log.subscription,
            retained_since=log.start - timedelta(days=7),
            now=log.start,
        )
    assert created is not None
    return created[0].snapshot_id


async def test_a_snapshot_holds_what_waits_behind_a_key(log: Log) -> None:
    await a_second_each(log)
    await log.execute("UPDATE delivery_attempts SET next_delivery_at = now() - interval '1 day'")  # a2 is due again
    snapshot = await snapshot_of(log)
    await publish(log, "a4", now=log.start + 5 * SECOND)
    while runs := await pull(log, now=log.start + 6 * SECOND):
        await acknowledge(log, *runs)
    await seek(log, to=snapshot)
    assert await pull_texts(log, now=log.start + 6 * SECOND) == ["a2", "a3"]


async def test_an_ordered_snapshot_restores_into_an_unordered_subscription(log: Log) -> None:
    await a_second_each(log)
    snapshot = await snapshot_of(log)
    await publish(log, "a4", now=log.start + 5 * SECOND)
    async with log.database.transaction() as connection:
        other = await add_subscription(connection, log.topic, "other", log.start)
    await seek(log, to=snapshot, subscription_id=other.subscription_id, ordered=False)
    got: list[str] = []
    for _ in range(3):
        deliveries = await log.pull(subscription_id=other.subscription_id, now=log.start + 5 * SECOND)
        got += texts(deliveries)
        for delivery in deliveries:
            if delivery.ordered:
                name = msgspec.structs.replace(log.name(delivery), subscription_id=other.subscription_id)
                async with log.session() as session:
                    await acknowledge_in_order(
                        session, shard_id=log.shard_id, acks={name: {0, 1}}, exactly_once=(), now=log.start
                    )
    assert sorted(got) == ["a2", "a3", "a4"]


@pytest.mark.parametrize("twice", [False, True])
async def test_an_unordered_snapshot_restores_into_an_ordered_subscription(log: Log, twice: bool) -> None:
    await publish(log, "a1", "b1", "a2", "X", "a3", "b2", "Y")
    [delivery] = await log.pull(6)
    await log.acknowledge(delivery, [0, 3])  # a1 and X
    snapshot = await snapshot_of(log)
    for _ in range(1 + twice):
        await seek(log, to=snapshot)
        await log.execute("INSERT INTO straggler_batches SELECT * FROM message_batches ON CONFLICT DO NOTHING")
    runs = await pull(log)
    assert sorted(texts(runs)) == ["Y", "a2", "a3", "b1", "b2"]
    await publish(log, "a4")
    assert await pull(log) == []
    await acknowledge(log, *(run for run in runs if run.ordered))
    assert await pull_texts(log) == ["a4"]
