"""A topic that gets more shards gives each of its subscriptions a cursor in them (docs/decisions/0051)."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from broker.core.catalog import subscription_rows as subscriptions
from broker.core.catalog import topic_logs
from broker.core.catalog import topic_rows as topics
from broker.model.due_attempt import first_due_floor
from tests.fixtures.log import Log, add_subscription
from tests.interleavings.steps import until_waiting

_THERE = "SELECT subscription_id, shard_id FROM cursors"
_WANTED = "SELECT subscription_id, shard_id FROM subscriptions JOIN shards USING (topic_id) WHERE NOT detached"


async def raise_shards(log: Log) -> None:
    async with log.database.transaction() as connection:
        topic = await topics.lock_topic(connection, name=log.topic.name)
        assert topic is not None
        await topic_logs.add_shards(connection, topic=topic, count=2, now=log.start)


async def add_levels(log: Log) -> None:
    """Shards of two levels of urgency (docs/decisions/0052)."""
    async with log.database.transaction() as connection:
        topic = await topics.lock_topic(connection, name=log.topic.name)
        assert topic is not None
        await topic_logs.add_levels(connection, topic=topic, levels=[0, 1], now=log.start)


async def without_cursors(log: Log) -> list[tuple[int, int]]:
    """Pairs of subscription and shard that belong together, without a cursor, or have one and do not."""
    return await log.rows(  # type: ignore[return-value]
        f"({_WANTED} EXCEPT {_THERE}) UNION ALL ({_THERE} EXCEPT {_WANTED})"
    )


async def test_a_nack_of_a_process_whose_clock_is_behind_is_due_in_a_new_shard_too(log: Log) -> None:
    await raise_shards(log)
    [(floor,)] = await log.rows("SELECT max(due_floor) FROM cursors")
    assert floor == first_due_floor(log.start) < log.start


@pytest.mark.parametrize("change", [raise_shards, add_levels])
async def test_a_subscription_that_is_made_meanwhile_has_all_cursors(
    log: Log, change: Callable[[Log], Coroutine[Any, Any, None]]
) -> None:
    async with log.database.transaction() as connection:
        assert await topics.share_topic(connection, name=log.topic.name) == log.topic.topic_id
        await add_subscription(connection, log.topic, "second", log.start)
        raising = asyncio.create_task(change(log))
        await until_waiting(log.database)
    await raising
    assert await without_cursors(log) == []


@pytest.mark.parametrize("change", [raise_shards, add_levels])
@pytest.mark.parametrize("detach", [False, True])
async def test_one_that_is_deleted_or_detached_meanwhile_leaves_none(
    log: Log, detach: bool, change: Callable[[Log], Coroutine[Any, Any, None]]
) -> None:
    subscription_id = log.subscription.subscription_id
    async with log.database.transaction() as connection:
        if detach:
            await subscriptions.lock_subscription(connection, name=log.subscription.name)
            await subscriptions.detach_subscription(connection, subscription_id=subscription_id, now=log.start)
        else:
            await subscriptions.delete_subscription(connection, subscription_id=subscription_id)
        raising = asyncio.create_task(change(log))
        await until_waiting(log.database)
    await raising
    assert await without_cursors(log) == []


async def test_one_that_is_deleted_after_waits_and_takes_the_new_cursors_along(log: Log) -> None:
    subscription_id = log.subscription.subscription_id
    async with log.database.transaction() as connection:
        topic = await topics.lock_topic(connection, name=log.topic.name)
        assert topic is not None
        await topic_logs.add_shards(connection, topic=topic, count=2, now=log.start)

        async def delete() -> None:
            async with log.database.transaction() as other:
                await subscriptions.delete_subscription(other, subscription_id=subscription_id)

        deleting = asyncio.create_task(delete())
        await until_waiting(log.database)
    await deleting
    assert await without_cursors(log) == []
