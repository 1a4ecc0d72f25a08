"""The rules of claims for push under concurrency, as of other claims (docs/claim.md)."""

import asyncio
from typing import Any

import pytest

from broker.core.acking.delivery_attempts import modify_ack_deadline
from broker.core.catalog import subscription_rows as subscriptions
from broker.core.claiming.transaction import claim as claims
from broker.core.claiming.transaction import due, write
from broker.core.claiming.transaction.request import Gone, Locked, More, Quiet
from broker.model.ack_id import attempt_name
from broker.model.deadline_change import DeadlineChange
from broker.model.delivery import Delivery
from broker.model.retry_policy import RetryPolicy
from tests.core.backlog.test_seek import seek_to_time
from tests.fixtures.log import ACK_DEADLINE, SECOND, texts
from tests.fixtures.push_log import One, PushLog, contents
from tests.interleavings.steps import changed, open_transaction, paused, until_waiting

pytestmark = [pytest.mark.slow, pytest.mark.ci]

WRITES = "UPDATE cursors"
READS = "generate_series"


def replaced(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, old: str, new: str) -> None:
    """Take a rule out of one of the statements of a claim for push."""
    monkeypatch.setattr(module, name, changed(getattr(module, name), old, new))


async def two_claims_for_the_same_chunk_hand_out_every_message_once_and_neither_waits(push_log: PushLog) -> None:
    await push_log.publish("a", "b")
    async with paused(push_log.log.database, before=WRITES) as first:
        claim = asyncio.create_task(push_log.claim(connection=first))
        await first.reached.wait()
        other = await push_log.claim()  # while the first holds its locks
        first.go.set()
        one = await claim
    assert [claimed.rest for claimed in other] == [Locked()] * 3
    assert (contents(one), contents(other)) == ([["a", "b"]] * 3, [[]] * 3)
    assert contents(await push_log.claim()) == [[]] * 3


async def test_two_claims_for_the_same_chunk_hand_out_every_message_once_and_neither_waits(
    push_log: PushLog,
) -> None:
    await two_claims_for_the_same_chunk_hand_out_every_message_once_and_neither_waits(push_log)


async def test_both_would_hand_out_all_if_they_did_not_lock_the_cursors(
    push_log: PushLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced(monkeypatch, claims, "_LOCK_FREE_CURSORS", "FOR UPDATE SKIP LOCKED", "")
    with pytest.raises(AssertionError):
        await two_claims_for_the_same_chunk_hand_out_every_message_once_and_neither_waits(push_log)


async def test_claims_for_chunks_that_overlap_share_the_work(push_log: PushLog) -> None:
    await push_log.publish("a")
    async with paused(push_log.log.database, before=WRITES) as first:
        claim = asyncio.create_task(push_log.claim(0, 1, connection=first))
        await first.reached.wait()
        other = await push_log.claim(1, 2)
        first.go.set()
        one = await claim
    assert contents(one) + contents(other) == [["a"], ["a"], [], ["a"]]


async def test_a_publish_between_the_lock_and_the_read_is_not_skipped(push_log: PushLog) -> None:
    await push_log.publish("early")
    async with paused(push_log.log.database, before=READS) as claiming:
        claim = asyncio.create_task(push_log.claim(connection=claiming))
        await claiming.reached.wait()
        await push_log.publish("late")
        claiming.go.set()
        assert contents(await claim) == [["early", "late"]] * 3


async def a_publish_between_the_read_and_the_write_is_not_skipped(push_log: PushLog) -> None:
    await push_log.publish("early")
    async with paused(push_log.log.database, before=WRITES) as claiming:
        claim = asyncio.create_task(push_log.claim(connection=claiming))
        await claiming.reached.wait()
        await push_log.publish("late")
        claiming.go.set()
        assert contents(await claim) == [["early"]] * 3
    assert contents(await push_log.claim()) == [["late"]] * 3


async def test_a_publish_between_the_read_and_the_write_is_not_skipped(push_log: PushLog) -> None:
    await a_publish_between_the_read_and_the_write_is_not_skipped(push_log)


async def test_it_would_be_if_the_cursors_moved_to_a_head_read_later(
    push_log: PushLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = "next_seq = (SELECT head + 1 FROM shards WHERE shard_id = $1)"
    replaced(monkeypatch, write, "_MOVE_CURSORS", "next_seq = m.next_seq", later)
    with pytest.raises(AssertionError):
        await a_publish_between_the_read_and_the_write_is_not_skipped(push_log)


async def test_what_is_acked_while_a_claim_waits_for_the_row_is_not_redelivered(push_log: PushLog) -> None:
    await push_log.publish("a", "b")
    first, *_ = await push_log.claim()
    async with open_transaction(push_log.log.database) as acking:
        await push_log.acknowledge(0, first.deliveries[0], [0], connection=acking)
        claim = asyncio.create_task(push_log.claim(now=push_log.start + ACK_DEADLINE))
        await until_waiting(push_log.log.database)
    assert contents(await claim) == [["b"], ["a", "b"], ["a", "b"]]


async def an_extended_deadline_is_not_taken_for_due(push_log: PushLog) -> None:
    await push_log.publish("a")
    [first] = await push_log.claim(0)
    later = push_log.start + ACK_DEADLINE
    async with open_transaction(push_log.log.database) as extending:
        await extend(push_log, first, later + 60 * SECOND, extending)
        claim = asyncio.create_task(push_log.claim(0, now=later, retry_policy=RetryPolicy()))
        await until_waiting(push_log.log.database)  # the claim has seen the old deadline, and waits for the row
    assert await claim == [One((), More())]
    assert await push_log.claim(0, now=later) == [One((), Quiet(later + 60 * SECOND))]
    assert await push_log.log.attempts() == [("delivering", 1, "1")]


async def extend(push_log: PushLog, claimed: One, due: Any, connection: Any) -> None:
    """A new ack deadline for what the first subscription was handed out."""
    name = attempt_name(push_log.ids[0], claimed.deliveries[0])
    await modify_ack_deadline(
        connection,
        shard_id=push_log.log.shard_id,
        changes=[DeadlineChange(name, frozenset(range(name.count)), due)],
        new_parts=list(push_log.log.attempt_ids.take_parts(1, now=push_log.start)),
        jitter=0.0,
        now=push_log.start,
    )


async def test_an_extended_deadline_is_not_taken_for_due(push_log: PushLog) -> None:
    await an_extended_deadline_is_not_taken_for_due(push_log)


async def test_it_would_be_if_the_locked_row_were_not_checked_again(
    push_log: PushLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced(monkeypatch, due, "_LOCK_DUE_ATTEMPTS", "    WHERE d.next_delivery_at <= $4\n", "")
    with pytest.raises(AssertionError):
        await an_extended_deadline_is_not_taken_for_due(push_log)


async def test_an_ack_while_a_claim_waits_does_not_hide_the_rows_it_had_no_capacity_for(
    push_log: PushLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer rows come back than the claim may look at, and yet there are more: the floor must not pass them."""
    monkeypatch.setattr(due, "MAX_DUE_ROWS", 2)
    attempts: list[Delivery] = []
    for text in "abc":
        await push_log.publish(text)
        attempts += (await push_log.claim(0, includes_due=False))[0].deliveries
    much_later = push_log.start + 3600 * SECOND
    async with open_transaction(push_log.log.database) as acking:
        await push_log.acknowledge(0, attempts[0], connection=acking)
        claim = asyncio.create_task(push_log.claim(0, now=much_later))
        await until_waiting(push_log.log.database)
    [claimed] = await claim
    assert (texts(claimed.deliveries), claimed.more) == (["b"], True)
    assert await push_log.texts(0, now=much_later) == ["c"]


async def test_claims_and_acks_lock_attempts_in_one_order(push_log: PushLog) -> None:
    attempts: list[Delivery] = []
    for text in "abc":
        await push_log.publish(text)
        attempts += (await push_log.claim(0))[0].deliveries
    names = [attempt_name(push_log.ids[0], delivery) for delivery in attempts]

    async def change(connection: Any, seconds: dict[int, int]) -> None:
        await modify_ack_deadline(
            connection,
            shard_id=push_log.log.shard_id,
            changes=[
                DeadlineChange(names[n], frozenset({0}), push_log.start + s * SECOND) for n, s in seconds.items()
            ],
            new_parts=list(push_log.log.attempt_ids.take_parts(len(seconds), now=push_log.start)),
            jitter=0.0,
            now=push_log.start,
        )

    async def change_all() -> None:
        async with push_log.log.database.hot() as connection:
            await change(connection, {0: 30, 1: 20, 2: 10})

    await change_all()  # the later an attempt was made, the earlier it is due
    async with open_transaction(push_log.log.database) as holding:
        await change(holding, {1: 20})
        claim = asyncio.create_task(push_log.claim(0, now=push_log.start + 60 * SECOND))
        await until_waiting(push_log.log.database, 1)
        other = asyncio.create_task(change_all())
        await until_waiting(push_log.log.database, 2)
    outcomes = await asyncio.gather(claim, other, return_exceptions=True)
    assert not [outcome for outcome in outcomes if isinstance(outcome, BaseException)]


async def test_a_seek_invalidates_what_a_claim_was_just_handing_out(push_log: PushLog) -> None:
    await push_log.publish("a", "b")
    async with paused(push_log.log.database, before=WRITES) as claiming:
        claim = asyncio.create_task(push_log.claim(connection=claiming))
        await claiming.reached.wait()
        seek = asyncio.create_task(seek_to_time(push_log.log, push_log.start, replay_since=push_log.start))
        await until_waiting(push_log.log.database)
        claiming.go.set()
        first, *_ = await claim
        await seek
    assert await push_log.acknowledge(0, first.deliveries[0]) == {0, 1}, "its ack id still counts"
    assert contents(await push_log.claim()) == [["a", "b"], [], []]


async def test_a_subscription_that_is_deleted_while_it_is_claimed_for_is_gone_afterwards(
    push_log: PushLog,
) -> None:
    async def delete() -> None:
        async with push_log.log.database.transaction() as connection:
            await subscriptions.delete_subscription(connection, subscription_id=push_log.ids[0])

    await push_log.publish("a")
    async with paused(push_log.log.database, before=WRITES) as claiming:
        claim = asyncio.create_task(push_log.claim(connection=claiming))
        await claiming.reached.wait()
        deletion = asyncio.create_task(delete())
        await until_waiting(push_log.log.database)
        claiming.go.set()
        assert contents(await claim) == [["a"]] * 3
        await deletion
    quiet = Quiet(push_log.start + ACK_DEADLINE)
    assert [claimed.rest for claimed in await push_log.claim()] == [Gone(), quiet, quiet]


async def test_a_claim_does_not_wait_for_a_deletion(push_log: PushLog) -> None:
    await push_log.publish("a")
    async with push_log.log.database.transaction() as connection:
        await subscriptions.delete_subscription(connection, subscription_id=push_log.ids[0])
        claimed = await push_log.claim()
    assert [one.rest for one in claimed] == [Locked(), Quiet(), Quiet()]
    quiet = Quiet(push_log.start + ACK_DEADLINE)
    assert [one.rest for one in await push_log.claim()] == [Gone(), quiet, quiet]
