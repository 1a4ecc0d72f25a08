"""A topic that is purged has new logs, and nobody writes to or reads from the old ones (docs/operations.md)."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from broker.core.catalog import topic_logs
from broker.core.catalog import topic_rows as topics
from broker.core.claiming.transaction.request import Gone
from broker.core.log.messages import append_messages, encode_messages
from broker.core.retention.retention import delete_unwanted
from broker.db.driver.hot_connection import HotConnection
from broker.features.reset.rows import empty_project
from broker.model.freeze import Freeze
from broker.model.message import NewMessage
from broker.model.names import project_of
from broker.model.topic import Topic
from tests.fixtures.log import Log
from tests.interleavings.steps import execute, lock_rows, open_transaction, paused, until_waiting


async def purge(log: Log, topic: Topic | None = None) -> Topic:
    async with log.database.transaction() as connection:
        await topic_logs.replace_logs(connection, topic=topic or log.topic, now=log.start)
        found = await topics.find_topic(connection, name=log.topic.name)
    assert found is not None
    return found


async def append(log: Log, shard_id: int, connection: HotConnection | None = None) -> bool:
    batch = encode_messages([NewMessage(data=b"x")])
    async with log.session(connection) as session:
        return None is not await append_messages(session, shard_id=shard_id, requests=[batch], now=log.start)


async def test_a_publish_under_way_is_purged_and_a_later_one_finds_the_log_closed(log: Log) -> None:
    async with open_transaction(log.database) as slow:
        assert await append(log, log.shard_id, slow)
        purging = asyncio.create_task(purge(log))
        await until_waiting(log.database)
        later = asyncio.create_task(append(log, log.shard_id))
        await until_waiting(log.database, 2)
    topic = await purging
    await later  # either way: both wait for the row as it was, and PostgreSQL does not say who of them is next
    assert not await append(log, log.shard_id), "the old log is closed"
    assert topic.shard_ids != log.topic.shard_ids
    assert await append(log, topic.shard_ids[0])
    log.topic = topic
    assert await log.pull_texts() == ["x"], "nothing of the old log"


async def test_a_claim_under_way_ends_first_and_a_later_one_finds_no_cursor(log: Log) -> None:
    await log.publish("a", "b")
    async with paused(log.database, before="COMMIT") as claiming:
        claim = asyncio.create_task(log.claim(1, connection=claiming))
        await claiming.reached.wait()
        purging = asyncio.create_task(purge(log))
        await until_waiting(log.database)
        claiming.go.set()
        [[delivery]] = (await claim).deliveries
        await purging
    assert (await log.claim()).rest == Gone()
    assert await log.acknowledge(delivery) == {0}, "what was out is still there"
    async with log.database.connection() as connection:
        await delete_unwanted(connection, database=log.database, now=log.start)
    shards = f"SELECT 1 FROM shards WHERE shard_id = {log.shard_id}"
    attempts = f"SELECT 1 FROM delivery_attempts WHERE shard_id = {log.shard_id}"
    assert [await log.rows(shards), await log.rows(attempts)] == [[], []]


async def test_a_frozen_topic_has_new_logs_that_are_frozen(log: Log) -> None:
    freeze = Freeze("", log.start)
    async with log.database.transaction() as connection:
        await topics.freeze_topic(connection, topic=log.topic, freeze=freeze)
    topic = await purge(log, replace(log.topic, freeze=freeze))
    assert not await append(log, topic.shard_ids[0])


async def _delete(log: Log) -> None:
    async with log.database.transaction() as connection:
        await topics.delete_topic(connection, topic=log.topic)


async def _reset(log: Log) -> None:
    async with log.database.transaction() as connection:
        await empty_project(connection, project=project_of(log.topic.name))


@pytest.mark.parametrize("end", [_delete, _reset])
async def test_who_has_a_subscription_may_take_what_comes_after_it_while_its_topic_is_deleted(
    log: Log, end: Callable[[Log], Awaitable[None]]
) -> None:
    """A pause has it, and waits for a claim's cursors; the claim may be waiting for the head of a shard."""
    await log.execute("UPDATE subscriptions SET name = 'projects/other/subscriptions/theirs'")
    async with open_transaction(log.database) as pausing:
        await execute(pausing, "SELECT FROM subscriptions FOR UPDATE")
        ending = asyncio.create_task(end(log))
        await until_waiting(log.database)
        await execute(pausing, "SELECT FROM snapshots FOR UPDATE NOWAIT")
        for table in ("cursors", "shards"):
            await lock_rows(pausing, table, "FOR UPDATE NOWAIT")
    await ending
    assert await log.rows("SELECT topic FROM subscriptions") == [("_deleted-topic_",)]
