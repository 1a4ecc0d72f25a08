"""Rules of ordered delivery, each in the interleaving that breaks it, and shown to break without the rule (A6)."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

import pytest

from broker.core.acking import delivery_attempts
from broker.core.acking.delivery_attempts import acknowledge, acknowledge_in_order
from broker.core.claiming.transaction import claim as claims
from broker.core.claiming.transaction import write
from broker.core.claiming.transaction.request import ClaimRequest
from broker.core.claiming.transaction.state import TargetState
from broker.core.claiming.transaction.write import release_keys, rewrite_runs
from broker.db.driver.hot_connection import Bound
from broker.model.delivery import Delivery
from tests.fixtures.log import Log, texts
from tests.interleavings.steps import changed, open_transaction, paused, until_waiting

Ack = Callable[[Log, Delivery], Awaitable[None]]


async def ack(log: Log, delivery: Delivery) -> None:
    async with log.session() as session:
        name = log.name(delivery)
        await acknowledge_in_order(session, shard_id=log.shard_id, acks={name: {0}}, exactly_once=(), now=log.start)


async def ack_and_delete(log: Log, delivery: Delivery) -> None:
    """As acks of unordered messages do it: the row goes with its last bit."""
    async with log.session() as session:
        await acknowledge(session, shard_id=log.shard_id, acks={log.name(delivery): {0}})


async def an_ack_beside_a_claim_loses_no_waiting_message(log: Log, ack: Ack) -> None:
    await log.publish("a1", key="a")
    [run] = await log.pull(ordered=True)
    await log.publish("a2", key="a")
    async with paused(log.database, before="UPDATE cursors") as claiming:
        claim = asyncio.create_task(log.claim(10, connection=claiming, ordered=True))
        await claiming.reached.wait()  # it passes a2 by, for its key is held
        await ack(log, run)
        claiming.go.set()
        assert texts((await claim).deliveries[0]) == []
    assert await log.pull_texts(ordered=True) == ["a2"]


async def test_an_ack_beside_a_claim_loses_no_waiting_message(log: Log) -> None:
    await an_ack_beside_a_claim_loses_no_waiting_message(log, ack)


async def test_it_would_if_acks_deleted_the_rows_of_keys(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    statement = delivery_attempts._ACKNOWLEDGE
    without_rule = changed(statement, "d.ordering_key IS NULL", "d.ordering_key IS NOT NULL")
    monkeypatch.setattr(delivery_attempts, "_ACKNOWLEDGE", without_rule)
    with pytest.raises(AssertionError, match="'a2'"):
        await an_ack_beside_a_claim_loses_no_waiting_message(log, ack_and_delete)


async def a_key_comes_free_before_fresh_messages_are_read(log: Log) -> None:
    await log.publish("a1", key="a")
    [run] = await log.pull(ordered=True)
    await ack(log, run)
    await log.publish("a2", key="a")
    assert await log.pull_texts(ordered=True) == ["a2"]


async def test_a_key_comes_free_before_fresh_messages_are_read(log: Log) -> None:
    await a_key_comes_free_before_fresh_messages_are_read(log)


async def test_its_next_message_would_be_lost_if_it_came_free_later(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def release_later(request: ClaimRequest, states: Sequence[TargetState], at: datetime) -> list[Bound]:
        released = release_keys(request, states)
        return [*rewrite_runs(request, states, at), *(query.bound for query in released)]

    monkeypatch.setattr(claims, "release_keys", lambda request, states: [])
    monkeypatch.setattr(write, "rewrite_runs", release_later)
    with pytest.raises(AssertionError, match="'a2'"):
        await a_key_comes_free_before_fresh_messages_are_read(log)


async def test_two_claims_never_hand_out_one_key(log: Log) -> None:
    """The second waits for the first's lock, and then sees that the key is held."""
    await log.publish("a1", "a2", key="a")
    where = {"shard_id": log.shard_id, "subscription_ids": [log.subscription.subscription_id]}
    async with open_transaction(log.database) as holder:
        await holder.run((claims._LOCK_CURSORS, where))
        pulls = [asyncio.create_task(log.pull_texts(1, ordered=True)) for _ in range(2)]
        await until_waiting(log.database, 2)
    assert sorted(await asyncio.gather(*pulls)) == [[], ["a1"]]


async def test_they_would_without_the_cursors_lock(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database itself refuses a second row of a key then."""
    statement = claims._LOCK_CURSORS
    monkeypatch.setattr(claims, "_LOCK_CURSORS", changed(statement, "FOR UPDATE", ""))
    await log.publish("a1", "a2", key="a")
    async with paused(log.database, before="UPDATE cursors") as claiming:
        claim = asyncio.create_task(log.claim(1, connection=claiming, ordered=True))
        await claiming.reached.wait()
        assert await log.pull_texts(1, ordered=True) == ["a1"]
        claiming.go.set()
        with pytest.raises(Exception, match="delivery_attempts_ordering_key_idx"):
            await claim
