"""What a pause and a freeze promise of every process, whether it has heard of them or not (docs/operations.md)."""

import asyncio

import pytest

from broker.core.catalog import push_state_rows as push_states
from broker.core.catalog import topic_rows as topics
from broker.core.claiming.transaction.request import Gone
from broker.core.log import messages
from broker.core.log.messages import append_messages, encode_messages
from broker.core.log.partitions import PartitionMissing
from broker.db.driver.hot_connection import HotConnection
from broker.model.freeze import Freeze
from broker.model.message import NewMessage
from tests.fixtures.log import SECOND, Log, texts
from tests.fixtures.push_log import PushLog
from tests.interleavings.steps import open_transaction, paused, until_waiting


async def pause(log: Log) -> None:
    async with log.database.transaction() as connection:
        await push_states.pause_claims(connection, subscription_id=log.subscription.subscription_id)


async def resume(log: Log) -> None:
    async with log.database.transaction() as connection:
        await push_states.resume_pushes(connection, subscription_id=log.subscription.subscription_id)


async def freeze(log: Log, freeze: Freeze | None) -> None:
    async with log.database.transaction() as connection:
        await topics.freeze_topic(connection, topic=log.topic, freeze=freeze)


async def append(log: Log, text: str, connection: HotConnection | None = None) -> bool:
    batch = encode_messages([NewMessage(data=text.encode())])
    async with log.session(connection) as session:
        return None is not await append_messages(session, shard_id=log.shard_id, requests=[batch], now=log.start)


async def test_what_is_claimed_was_claimed_before_the_pause_was_answered(log: Log) -> None:
    """A claim under way ends first; one that begins later, by whoever has not heard of the pause, gets nothing.

    Of two that wait for a row that is being changed PostgreSQL lets either go first: that is no promise.
    """
    await log.publish("a", "b")
    async with paused(log.database, before="COMMIT") as claiming:
        claim = asyncio.create_task(log.claim(1, connection=claiming))
        await claiming.reached.wait()
        pausing = asyncio.create_task(pause(log))
        await until_waiting(log.database)
        claiming.go.set()
        await claim
        await pausing
    later = await log.claim(1)
    [given] = later.deliveries
    assert (given, later.rest) == ((), Gone())
    assert await log.pull_texts(now=log.start + 11 * SECOND) == [], "a lease that ended goes out again"
    await resume(log)
    assert sorted(await log.pull_texts(now=log.start + 11 * SECOND)) == ["a", "b"]


async def test_a_claim_for_many_passes_those_that_are_paused(push_log: PushLog) -> None:
    await push_log.log.publish("a")
    async with push_log.log.database.transaction() as connection:
        await push_states.pause_claims(connection, subscription_id=push_log.ids[0])
    paused_one, *others = await push_log.claim()
    assert (paused_one.deliveries, paused_one.rest) == ((), Gone())
    assert all(texts(other.deliveries) == ["a"] for other in others)


async def test_what_is_published_was_published_before_the_freeze_was_answered(log: Log) -> None:
    why = Freeze("It is full.", log.start)
    async with open_transaction(log.database) as slow:
        assert await append(log, "before", slow)
        freezing = asyncio.create_task(freeze(log, why))
        await until_waiting(log.database)
        later = asyncio.create_task(append(log, "later"))
        await until_waiting(log.database, 2)
    await freezing
    # Both wait for the row as it was, and PostgreSQL does not say who of them is next.
    stored = ["before", "later"] if await later else ["before"]
    assert not await append(log, "after")
    await freeze(log, None)
    assert await append(log, "again")
    assert await log.pull_texts() == [*stored, "again"]


async def test_a_broker_that_knows_no_freezes_cannot_publish_either(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told of an error that it does not know, and nothing is stored."""
    await freeze(log, Freeze("", log.start))
    monkeypatch.setattr(messages, "is_frozen", lambda error: False)
    with pytest.raises(PartitionMissing):
        await append(log, "new")
    await freeze(log, None)
    assert await log.pull_texts() == []
