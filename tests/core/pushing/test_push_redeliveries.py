"""The redeliveries of claims for push (A4, A5, A8)."""

from datetime import timedelta

import pytest

from broker.core.claiming.transaction import allocate
from broker.core.claiming.transaction import due as due_rows
from broker.core.claiming.transaction.request import Quiet
from broker.model.retry_policy import RetryPolicy
from tests.core.backlog.test_seek import create_snapshot, seek_to_snapshot
from tests.fixtures.log import ACK_DEADLINE, SECOND, texts
from tests.fixtures.push_log import One, PushLog, contents

POLICY = RetryPolicy(minimum_backoff=10 * SECOND, maximum_backoff=600 * SECOND)


async def test_unacked_messages_are_redelivered_exactly_at_their_deadline(push_log: PushLog) -> None:
    await push_log.publish("a")
    await push_log.claim()
    deadline = push_log.start + ACK_DEADLINE
    early = await push_log.claim(now=deadline - timedelta(milliseconds=1))
    assert contents(early) == [[]] * 3
    assert [one.rest for one in early] == [Quiet(deadline)] * 3
    again = await push_log.claim(now=deadline)
    assert contents(again) == [["a"]] * 3
    assert {one.deliveries[0].attempt_number for one in again} == {2}


async def test_who_does_not_look_for_redeliveries_gets_none_and_knows_of_none(push_log: PushLog) -> None:
    await push_log.publish("a")
    await push_log.claim()
    later = push_log.start + ACK_DEADLINE
    targets = [push_log.target(0, includes_due=False), push_log.target(1)]
    assert contents(await push_log.claim_for(*targets, now=later)) == [[], ["a"]]
    [claimed] = await push_log.claim(0, includes_due=False, now=later + SECOND)
    assert claimed == One((), Quiet())
    assert await push_log.texts(0, now=later + 3600 * SECOND) == ["a"]


async def test_what_is_handed_out_now_is_no_reason_to_look_again(push_log: PushLog) -> None:
    await push_log.publish("a")
    assert [one.rest for one in await push_log.claim()] == [Quiet()] * 3


async def test_attempts_of_different_numbers_are_deliveries_of_their_own(push_log: PushLog) -> None:
    await push_log.publish("a")
    [first] = await push_log.claim(0)
    await push_log.nack(0, first.deliveries[0])
    await push_log.publish("b")
    [claimed] = await push_log.claim(0)
    assert [(texts([delivery]), delivery.attempt_number) for delivery in claimed.deliveries] == [
        (["a"], 2),
        (["b"], 1),
    ]


async def test_messages_that_always_fail_do_not_starve_fresh_ones(push_log: PushLog) -> None:
    await push_log.publish(*[f"poison{n}" for n in range(100)])
    [poison] = await push_log.claim(0)
    await push_log.nack(0, poison.deliveries[0])
    await push_log.publish(*[f"fresh{n}" for n in range(100)])
    [claimed] = await push_log.claim(0, max_messages=20)
    assert [text[:5] for text in texts(claimed.deliveries)] == ["poiso"] * 10 + ["fresh"] * 10
    assert claimed.more
    assert len(await push_log.texts(0)) == 180


async def test_an_expired_deadline_starts_the_retry_delay(push_log: PushLog) -> None:
    await push_log.publish("a")
    await push_log.claim(0)
    expired = push_log.start + ACK_DEADLINE
    [claimed] = await push_log.claim(0, now=expired, retry_policy=POLICY)
    assert claimed == One((), Quiet(expired + 10 * SECOND))
    assert await push_log.texts(now=expired + 9 * SECOND, retry_policy=POLICY) == []
    assert await push_log.texts(now=expired + 10 * SECOND, retry_policy=POLICY) == ["a"]


async def test_a_nack_is_due_after_the_retry_delay(push_log: PushLog) -> None:
    await push_log.publish("a")
    [claimed] = await push_log.claim(0, retry_policy=POLICY)
    await push_log.nack(0, claimed.deliveries[0], retry_policy=POLICY)
    assert [one.rest for one in await push_log.claim(0)] == [Quiet(push_log.start + 10 * SECOND)]
    assert await push_log.texts(now=push_log.start + 10 * SECOND, retry_policy=POLICY) == ["a"]


async def test_messages_that_have_used_up_their_attempts_wait_for_the_dead_letter_forwarder(
    push_log: PushLog,
) -> None:
    await push_log.publish("a")
    for _ in range(2):
        [claimed] = await push_log.claim(0, max_attempts=2)
        await push_log.nack(0, claimed.deliveries[0])
    assert (await push_log.claim(0, max_attempts=2)) == [One((), Quiet())]
    assert await push_log.log.attempts() == [("exhausted", 2, "1")]


async def test_redeliveries_past_the_retention_are_forgotten(push_log: PushLog) -> None:
    """Nothing is due for ever, and what is still there of the same row goes out."""
    await push_log.publish("old")
    later = push_log.start + timedelta(minutes=9)
    await push_log.publish("new", now=later)
    await push_log.claim(now=later)
    due = later + ACK_DEADLINE
    assert contents(await push_log.claim(now=due, retained_since=later)) == [["new"]] * 3
    await push_log.claim(now=due + ACK_DEADLINE, retained_since=due)
    assert await push_log.log.attempts() == []


async def test_redeliveries_whose_messages_are_stragglers_are_found(push_log: PushLog) -> None:
    await push_log.publish("a")
    await push_log.claim()
    await push_log.log.execute(
        "INSERT INTO straggler_batches SELECT * FROM message_batches; DELETE FROM message_batches"
    )
    assert contents(await push_log.claim(now=push_log.start + ACK_DEADLINE)) == [["a"]] * 3


async def test_more_due_rows_than_a_claim_looks_at_are_found_by_the_next(
    push_log: PushLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due_rows, "MAX_DUE_ROWS_OF_ALL", 6)
    for text in "abcde":
        await push_log.publish(text)
        await push_log.claim()
    later = push_log.start + 3600 * SECOND
    seen: list[list[str]] = [[], [], []]
    for more in (True, True, False):
        claimed = await push_log.claim(now=later)
        for texts_, one in zip(seen, contents(claimed), strict=True):
            texts_ += one
        assert [one.more for one in claimed] == [more] * 3
    assert seen == [[*"abcde"]] * 3


async def test_more_due_messages_than_a_claim_looks_up_are_found_by_the_next(
    push_log: PushLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due_rows, "MAX_DUE_MESSAGES", 4)
    await push_log.publish("a", "b", "c")
    await push_log.claim()
    later = push_log.start + ACK_DEADLINE
    claimed = await push_log.claim(now=later)
    assert contents(claimed) == [["a", "b", "c"], ["a"], []]
    assert [one.more for one in claimed] == [False, True, True]
    assert contents(await push_log.claim(1, 2, now=later)) == [["b", "c"], ["a", "b"]]


async def test_what_a_snapshot_of_an_ordered_subscription_left_out_is_delivered(push_log: PushLog) -> None:
    log = push_log.log
    for text in ("k1", "k2"):
        await log.publish(text, key="k")
    await log.pull(ordered=True)
    snapshot_id, _ = await create_snapshot(log)
    await seek_to_snapshot(log, snapshot_id, push_log.ids[1])
    await log.execute("DELETE FROM delivery_attempts WHERE subscription_id = " + str(push_log.ids[0]))
    await push_log.publish("fresh")
    claimed = await push_log.claim(1, 0, now=push_log.start + SECOND)
    assert sorted(texts(claimed[0].deliveries)) == ["fresh", "k1", "k2"]
    assert texts(claimed[1].deliveries) == ["fresh"]


async def test_redeliveries_that_have_no_capacity_in_a_claim_stay_due(
    push_log: PushLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text in "xy":
        await push_log.publish(text * 3000)
        await push_log.claim(0 if text == "x" else 1, max_messages=1)
        await push_log.claim(1 if text == "x" else 0, max_messages=1, includes_due=False)
    for claimed in await push_log.claim(0, 1, now=push_log.start + SECOND):
        assert not claimed.deliveries
    monkeypatch.setattr(allocate, "MAX_BYTES", 3200)
    later = push_log.start + ACK_DEADLINE
    seen: list[str] = []
    for _ in range(4):
        claimed_now = await push_log.claim(0, 1, now=later, max_messages=1)
        seen += [text[0] for one in contents(claimed_now) for text in one]
    assert sorted(seen) == ["x", "x", "y", "y"]
