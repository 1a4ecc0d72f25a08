"""What is resent is delivered once more, to one subscription, and once however often it is asked for (G2)."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from psycopg.errors import DeadlockDetected

from broker.core.acking.delivery_attempts import acknowledge_in_order
from broker.core.backlog import locked_backlog
from broker.core.backlog.outcome import Outcome
from broker.core.catalog import subscription_rows as subscriptions
from broker.db.driver.hot_connection import HotConnection
from broker.db.driver.statements import BEGIN, COMMIT
from broker.features.resend.rows import Resend, resend
from broker.model.delivery import Delivery
from broker.model.errors import Aborted, FailedPrecondition
from broker.model.journal import NOBODY
from tests.fixtures.dead_letters import make_dead_letters
from tests.fixtures.log import ACK_DEADLINE, SECOND, Log, add_subscription, texts
from tests.interleavings.steps import changed, open_transaction, paused, until_waiting

RESENT, OUT, WAITING = Outcome.RESENT, Outcome.OUTSTANDING, Outcome.WAITING


async def _resend(log: Log, *seqs: int, connection: HotConnection | None = None) -> Sequence[Outcome]:
    ids = [(log.shard_id, seq) for seq in seqs]
    asked = Resend(subscription=log.subscription, ids=ids, author=NOBODY, now=log.start + SECOND)
    if connection is not None:
        done = await resend(connection, asked, log.attempt_ids)
    else:
        async with open_transaction(log.database) as session:
            done = await resend(session, asked, log.attempt_ids)
    return [done[id_] for id_ in ids]


async def _ack_in_order(log: Log, *deliveries: Delivery) -> None:
    acks = {log.name(delivery): set(range(len(delivery.messages))) for delivery in deliveries}
    async with log.session() as session:
        await acknowledge_in_order(session, shard_id=log.shard_id, acks=acks, exactly_once=(), now=log.start)


async def test_what_was_acked_comes_once_more_and_what_is_to_come_is_left_as_it_is(log: Log) -> None:
    await log.publish(*"abcdef")
    [delivery] = await log.pull(4)
    await log.acknowledge(delivery, [0, 1])
    await log.nack(delivery, [2])
    assert await _resend(log, 2, 3, 4, 5, 7) == [RESENT, WAITING, OUT, WAITING, Outcome.UNKNOWN]
    assert await _resend(log, 2) == [WAITING]
    again = await log.pull(now=log.start + 2 * SECOND)
    assert sorted(texts(again)) == list("bcef")
    assert {each.attempt_number for each in again if "b" in texts([each])} == {1}
    late = log.start + 2 * ACK_DEADLINE
    await log.acknowledge_many(*again, *await log.pull(now=late))
    assert await log.attempts() == []
    assert await log.pull(now=late) == []


async def test_of_a_key_what_is_out_or_waits_is_left_as_it_is(log: Log) -> None:
    log.subscription = replace(log.subscription, enable_message_ordering=True)
    await log.execute("UPDATE subscriptions SET enable_message_ordering = true")
    await log.publish(*"abcd", key="k")
    [delivery] = await log.pull(2, ordered=True)
    assert await _resend(log, 1, 3) == [OUT, WAITING]
    await log.nack(delivery)
    assert await log.pull_texts(ordered=True, now=log.start + SECOND) == ["a", "b"]


async def test_two_that_resend_at_once_deliver_it_once(log: Log) -> None:
    await log.publish("a")
    await log.acknowledge_many(*await log.pull())
    async with open_transaction(log.database) as first:
        assert await _resend(log, 1, connection=first) == [RESENT]
        second = asyncio.create_task(_resend(log, 1))
        await until_waiting(log.database)
    assert await second == [WAITING]
    assert await log.pull_texts(now=log.start + 2 * SECOND) == ["a"]


async def test_what_nobody_retains_and_what_the_filter_does_not_match_is_said(log: Log) -> None:
    await log.publish("a")
    await log.publish("b")
    await log.acknowledge_many(*await log.pull())
    await log.execute("DELETE FROM message_batches WHERE last_seq = 1")
    await log.execute("UPDATE subscriptions SET filter = 'attributes:env', filter_path = 'exists($.env)'")
    assert await _resend(log, 1, 2) == [Outcome.NOT_RETAINED, Outcome.FILTERED]
    assert await log.attempts() == []


async def test_what_is_older_than_the_subscription_is_its_own_once_it_is_resent(log: Log) -> None:
    """Else a dead letter that was resent to a younger subscription, and dealt with, would come back."""
    dead_letters = await make_dead_letters(log)
    await dead_letters.give_up("a", "b")
    older = dead_letters.dead.subscription
    async with log.database.transaction() as connection:
        await subscriptions.delete_subscription(connection, subscription_id=older.subscription_id)
        young = await add_subscription(connection, dead_letters.dead.topic, "young", log.start)
    dead_letters.dead.subscription = young
    assert await dead_letters.dead.pull() == []
    assert await _resend(dead_letters.dead, 2) == [RESENT]
    await dead_letters.dead.acknowledge_many(*await dead_letters.dead.pull(now=log.start + SECOND))
    young_pile = {"consumable": {young.subscription_id}}
    assert await dead_letters.redrive(**young_pile) == [Outcome.REDRIVEN]


async def test_a_subscription_that_is_detached_gets_nothing(log: Log) -> None:
    await log.publish("a")
    await log.execute("DELETE FROM cursors")
    with pytest.raises(FailedPrecondition, match="detached"):
        await _resend(log, 1)


@pytest.mark.parametrize("rule", [True, False])
async def test_an_ack_of_the_same_keys_does_not_wait_in_a_circle(
    log: Log, monkeypatch: pytest.MonkeyPatch, rule: bool
) -> None:
    """The row of the key that a message is to wait for is locked with those that hold any, and none later."""
    if not rule:
        held = "OR d.ordering_key = ANY (%(ordering_keys)s::text[])".replace("%(ordering_keys)s", "$4")
        monkeypatch.setattr(
            locked_backlog,
            "_LOCK_HOLDING_ATTEMPTS",
            changed(locked_backlog._LOCK_HOLDING_ATTEMPTS, held, "OR false AND $4 IS NULL"),
        )
    log.subscription = replace(log.subscription, enable_message_ordering=True)
    await log.execute("UPDATE subscriptions SET enable_message_ordering = true")
    await log.publish("a", key="k")
    await _ack_in_order(log, *await log.pull(ordered=True))
    await log.publish("b", key="k")
    [early] = await log.pull(ordered=True)
    await log.publish("c", key="l")
    [late] = await log.pull(ordered=True, now=log.start + SECOND)
    assert early.attempt_id < late.attempt_id
    async with paused(log.database, before="ON CONFLICT (shard_id, subscription_id, ordering_key)") as session:
        await session.run((BEGIN, {}))
        resending = asyncio.create_task(_resend(log, 1, 3, connection=session))
        await session.reached.wait()
        acking = asyncio.create_task(_ack_in_order(log, early, late))
        await until_waiting(log.database)
        session.go.set()
        [done] = await asyncio.gather(resending, return_exceptions=True)
        if isinstance(done, BaseException):
            await session.close()
        else:
            await session.run((COMMIT, {}))
    [acked] = await asyncio.gather(acking, return_exceptions=True)
    # PostgreSQL ends either; what it says to a transaction is translated where that ends.
    ended = [isinstance(each, Aborted | DeadlockDetected) for each in (done, acked)]
    assert any(ended) is not rule, (done, acked)
    if rule:
        assert (done, await log.pull_texts(ordered=True, now=log.start + SECOND)) == ([RESENT, OUT], ["a"])
