"""The rules of claims that hold only because of how statements and locks are arranged (docs/claim.md).

Each test drives real sessions into the interleaving that would break its rule, and is run a second time with the
rule taken out of the SQL: then it must fail, or it would prove nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from broker.core.claiming.transaction import claim as claims
from broker.core.claiming.transaction import due, fresh, write
from broker.core.process.attempt_ids import AttemptIds
from broker.model.retry_policy import RetryPolicy
from tests.fixtures.log import ACK_DEADLINE, SECOND, Log, texts
from tests.interleavings.steps import changed, open_transaction, paused, until_waiting

Rule = Callable[[Log], Awaitable[None]]


def replaced(monkeypatch: pytest.MonkeyPatch, name: str, old: str, new: str) -> None:
    """Take a rule out of one of the statements of a claim."""
    [module] = [module for module in (claims, due, fresh, write) if hasattr(module, name)]
    monkeypatch.setattr(module, name, changed(getattr(module, name), old, new))


async def two_claims_never_hand_out_one_message(log: Log) -> None:
    await log.publish("a", "b", "c")
    async with paused(log.database, before="COMMIT") as first:
        first_claim = asyncio.create_task(log.claim(2, connection=first))
        await first.reached.wait()
        second_claim = asyncio.create_task(log.claim(2))
        await until_waiting(log.database)
        first.go.set()
        one, other = await first_claim, await second_claim
    assert (texts(one.deliveries[0]), texts(other.deliveries[0])) == (["a", "b"], ["c"])


async def test_two_claims_never_hand_out_one_message(log: Log) -> None:
    await two_claims_never_hand_out_one_message(log)


async def test_they_would_if_the_lock_shared_a_snapshot_with_the_read(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced(monkeypatch, "_LOCK_CURSORS", "FOR UPDATE", "")
    replaced(
        monkeypatch,
        "_READ_FRESH_BATCHES",
        "FROM cursors AS c",
        """FROM (
            SELECT count(*)
            FROM (SELECT FROM cursors WHERE shard_id = $1 AND subscription_id = $2 FOR UPDATE) AS rows
        ) AS locked CROSS JOIN cursors AS c""",
    )
    with pytest.raises(AssertionError, match="'a', 'b'"):
        await two_claims_never_hand_out_one_message(log)


async def a_message_that_commits_late_is_not_skipped(log: Log) -> None:
    await log.publish("early")
    async with paused(log.database, before="UPDATE cursors") as claiming:
        claim = asyncio.create_task(log.claim(10, connection=claiming))
        await claiming.reached.wait()  # it has read the log, and not yet moved the cursor
        await log.publish("late")
        claiming.go.set()
        assert texts((await claim).deliveries[0]) == ["early"]
    assert await log.pull_texts() == ["late"]


async def test_a_message_that_commits_late_is_not_skipped(log: Log) -> None:
    await a_message_that_commits_late_is_not_skipped(log)


async def test_it_would_be_if_the_cursor_moved_to_a_head_read_later(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced(
        monkeypatch,
        "_MOVE_CURSORS",
        "next_seq = m.next_seq",
        "next_seq = greatest(m.next_seq, (SELECT head + 1 FROM shards WHERE shard_id = $1))",
    )
    with pytest.raises(AssertionError, match="late"):
        await a_message_that_commits_late_is_not_skipped(log)


async def an_extended_deadline_is_not_taken_for_due(log: Log) -> None:
    await log.publish("a")
    [delivery] = await log.pull()
    later = log.start + ACK_DEADLINE
    async with open_transaction(log.database) as extending:
        await log.modify_ack_deadline(delivery, None, later + 60 * SECOND, connection=extending)
        claim = asyncio.create_task(log.claim(10, now=later, retry_policy=RetryPolicy()))
        await until_waiting(log.database)  # the claim has seen the old deadline, and waits for the row
    assert texts((await claim).deliveries[0]) == []
    assert await log.attempts() == [("delivering", 1, "1")]


async def test_an_extended_deadline_is_not_taken_for_due(log: Log) -> None:
    await an_extended_deadline_is_not_taken_for_due(log)


async def test_it_would_be_if_the_locked_row_were_not_checked_again(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced(
        monkeypatch,
        "_LOCK_DUE_ATTEMPTS",
        "    WHERE d.next_delivery_at <= $4\n    ORDER BY d.subscription_id",
        "    ORDER BY d.subscription_id",
    )
    with pytest.raises(AssertionError):
        await an_extended_deadline_is_not_taken_for_due(log)


async def an_old_ack_id_never_acks_a_redelivery(log: Log) -> None:
    await log.publish("a")
    [first] = await log.pull()
    [second] = await log.pull(now=log.start + ACK_DEADLINE)
    assert await log.acknowledge(first) == {0}
    assert await log.acknowledge(second) == set()


async def test_an_old_ack_id_never_acks_a_redelivery(log: Log) -> None:
    await an_old_ack_id_never_acks_a_redelivery(log)


async def test_it_would_if_redeliveries_kept_their_attempt_id(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AttemptIds, "take", lambda _, count, **__: range(7, 7 + count))
    with pytest.raises(AssertionError):
        await an_old_ack_id_never_acks_a_redelivery(log)


async def claims_and_acks_lock_attempts_in_one_order(log: Log) -> None:
    await log.publish("a", "b", "c")
    first, middle, last = [(await log.pull(1))[0] for _ in range(3)]
    # The later an attempt was made, the earlier it is due: the two orders cross.
    for seconds, delivery in ((30, first), (20, middle), (10, last)):
        await log.modify_ack_deadline(delivery, None, log.start + seconds * SECOND)
    async with open_transaction(log.database) as holding:
        await log.modify_ack_deadline(middle, None, log.start + 20 * SECOND, connection=holding)
        claim = asyncio.create_task(log.claim(10, now=log.start + 60 * SECOND))
        await until_waiting(log.database, 1)
        ack = asyncio.create_task(log.acknowledge_many(first, middle, last))
        await until_waiting(log.database, 2)
    outcomes = await asyncio.gather(claim, ack, return_exceptions=True)
    assert not [outcome for outcome in outcomes if isinstance(outcome, BaseException)]


async def test_claims_and_acks_lock_attempts_in_one_order(log: Log) -> None:
    await claims_and_acks_lock_attempts_in_one_order(log)


async def test_they_would_deadlock_if_claims_locked_what_is_due_first(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced(monkeypatch, "_LOCK_DUE_ATTEMPTS", "d.attempt_id, d.part\n    FOR", "d.next_delivery_at\n    FOR")
    with pytest.raises(AssertionError, match="Aborted"):
        await claims_and_acks_lock_attempts_in_one_order(log)


async def an_ack_does_not_hide_the_rows_that_a_claim_had_no_capacity_for(log: Log) -> None:
    """Fewer rows come back than the claim may look at, and yet there are more: the floor must not pass them."""
    deliveries = []
    for text in "abc":
        await log.publish(text)
        deliveries += await log.pull()
    much_later = log.start + 3600 * SECOND
    async with open_transaction(log.database) as acking:
        await log.acknowledge(deliveries[0], connection=acking)
        claim = asyncio.create_task(log.claim(10, now=much_later))
        await until_waiting(log.database)  # the claim has found two of the three, and waits for the first
    assert texts((await claim).deliveries[0]) == ["b"]
    assert await log.pull_texts(now=much_later) == ["c"]


async def test_an_ack_does_not_hide_the_rows_that_a_claim_had_no_capacity_for(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due, "MAX_DUE_ROWS", 2)
    await an_ack_does_not_hide_the_rows_that_a_claim_had_no_capacity_for(log)


async def test_it_would_if_only_the_rows_that_come_back_were_counted(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due, "MAX_DUE_ROWS", 2)
    replaced(monkeypatch, "_LOCK_DUE_ATTEMPTS", "FROM found AS f\nUNION", "FROM locked AS f\nUNION")
    with pytest.raises(AssertionError):
        await an_ack_does_not_hide_the_rows_that_a_claim_had_no_capacity_for(log)
