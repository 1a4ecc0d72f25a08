"""The rules of retraction under concurrency (docs/decisions/0048-retraction.md)."""

import asyncio
from collections.abc import Sequence

import pytest

from broker.core.backlog import locked_backlog
from broker.core.log.messages import append_messages, encode_messages
from broker.db.driver.hot_connection import HotConnection
from broker.db.driver.statements import BEGIN, COMMIT
from broker.features.retraction import removal as retraction
from broker.features.retraction.removal import Asked, Done, retract
from broker.features.retraction.retraction import StateWhenRetracted
from broker.model.journal import NOBODY
from broker.model.message import NewMessage
from tests.fixtures.log import SECOND, Log
from tests.interleavings.steps import changed, leave_piles_unlocked, open_transaction, paused, until_waiting

LATER = 2 * SECOND


async def _retract(log: Log, *seqs: int, connection: HotConnection | None = None) -> Done:
    ids = [(log.shard_id, seq) for seq in seqs]
    asked = Asked(ids=ids, author=NOBODY, now=log.start + SECOND)
    if connection is not None:
        await connection.run((BEGIN, {}))
        done = await retract(connection, asked)
        await connection.run((COMMIT, {}))
        return done
    async with open_transaction(log.database) as session:
        return await retract(session, asked)


def _states(log: Log, done: Done) -> Sequence[StateWhenRetracted]:
    return list(done.states[log.subscription.name].values())


async def what_was_in_time_is_not_handed_out_by_a_claim_in_flight(log: Log) -> None:
    """The claim has found both messages before the retraction begins."""
    await log.publish("a", "b")
    async with paused(log.database, before="INSERT INTO delivery_attempts") as claiming:
        claim = asyncio.create_task(log.claim(1, connection=claiming))
        await claiming.reached.wait()
        retracting = asyncio.create_task(_retract(log, 1, 2))
        waiting = asyncio.create_task(until_waiting(log.database))
        await asyncio.wait((retracting, waiting), return_when=asyncio.FIRST_COMPLETED)
        claiming.go.set()
        [deliveries] = (await claim).deliveries
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    handed_out = {message.seq for delivery in deliveries for message in delivery.messages}
    states = (await retracting).states[log.subscription.name]
    in_time = {seq for (_, seq), state in states.items() if state is StateWhenRetracted.NEVER_DELIVERED}
    assert (handed_out, in_time) == ({1}, {2})
    assert await log.pull(now=log.start + LATER) == []


async def test_what_was_in_time_is_not_handed_out_by_a_claim_in_flight(log: Log) -> None:
    await what_was_in_time_is_not_handed_out_by_a_claim_in_flight(log)


async def test_it_would_be_if_cursors_were_not_locked(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_piles_unlocked(monkeypatch)
    with pytest.raises(AssertionError):
        await what_was_in_time_is_not_handed_out_by_a_claim_in_flight(log)


async def a_claim_that_waited_finds_it_gone(log: Log) -> None:
    await log.publish("a", "b")
    async with paused(log.database, before="INSERT INTO retracted_messages") as retracting:
        done = asyncio.create_task(_retract(log, 1, connection=retracting))
        await retracting.reached.wait()
        claim = asyncio.create_task(log.pull_texts(now=log.start + LATER))
        await until_waiting(log.database)
        retracting.go.set()
        assert _states(log, await done) == [StateWhenRetracted.NEVER_DELIVERED]
        assert await claim == ["b"]


async def test_a_claim_that_waited_finds_it_gone(log: Log) -> None:
    await a_claim_that_waited_finds_it_gone(log)


async def an_ack_in_flight_counts(log: Log) -> None:
    """It waits for the row of what is out, or the retraction waits for it: the answer is true either way."""
    await log.publish("a")
    [delivery] = await log.pull()
    async with open_transaction(log.database) as acking:
        assert await log.acknowledge(delivery, connection=acking) == set()
        retracting = asyncio.create_task(_retract(log, 1))
        waiting = asyncio.create_task(until_waiting(log.database))
        await asyncio.wait((retracting, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert _states(log, await retracting) == [StateWhenRetracted.SETTLED]


async def test_an_ack_in_flight_counts(log: Log) -> None:
    await an_ack_in_flight_counts(log)


async def test_it_would_be_said_to_be_out_if_rows_were_not_locked(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlocked = changed(locked_backlog._LOCK_HOLDING_ATTEMPTS, "FOR UPDATE", "")
    monkeypatch.setattr(locked_backlog, "_LOCK_HOLDING_ATTEMPTS", unlocked)
    with pytest.raises(AssertionError):
        await an_ack_in_flight_counts(log)


async def a_retraction_has_its_place_among_publishes(log: Log) -> None:
    """What it says was published before it was; what it waited for, too."""
    await log.publish("a")
    async with open_transaction(log.database) as slow:
        batch = encode_messages([NewMessage(data=b"b")])
        assert await append_messages(slow, shard_id=log.shard_id, requests=[batch], now=log.start)
        retracting = asyncio.create_task(_retract(log, 1))
        waiting = asyncio.create_task(until_waiting(log.database))
        await asyncio.wait((retracting, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    [made] = (await retracting).retractions.values()
    assert made.head == 2


async def test_a_retraction_has_its_place_among_publishes(log: Log) -> None:
    await a_retraction_has_its_place_among_publishes(log)


async def test_it_would_not_if_heads_were_not_locked(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    unlocked = changed(retraction._LOCK_HEADS, "FOR NO KEY UPDATE", "")
    monkeypatch.setattr(retraction, "_LOCK_HEADS", unlocked)
    with pytest.raises(AssertionError):
        await a_retraction_has_its_place_among_publishes(log)


async def test_retractions_publishes_claims_and_acks_side_by_side_end(log: Log) -> None:
    """They take their locks in one order."""
    await log.publish(*(f"m{n}" for n in range(20)))

    async def consume() -> set[int]:
        got: set[int] = set()
        for _ in range(5):
            for delivery in await log.pull(3, now=log.start):
                got |= {message.seq for message in delivery.messages}
                await log.acknowledge(delivery)
        return got

    async def withdraw(first: int) -> dict[int, StateWhenRetracted]:
        found: dict[int, StateWhenRetracted] = {}
        for seq in range(first, 21, 4):
            done = await _retract(log, seq, 21 - seq)
            for (_, of), state in done.states.get(log.subscription.name, {}).items():
                found.setdefault(of, state)
        return found

    gots, *founds = await asyncio.wait_for(
        asyncio.gather(consume(), *(withdraw(first) for first in range(1, 5)), log.publish("x"), log.publish("y")),
        30,
    )
    in_time = {
        seq
        for found in founds
        if found
        for seq, state in found.items()
        if state is StateWhenRetracted.NEVER_DELIVERED
    }
    assert not gots & in_time
    assert not await log.rows("SELECT 1 FROM messages WHERE seq <= 20")
