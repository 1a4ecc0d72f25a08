"""C8: topics and subscriptions by name, read many at a time and dropped when they change."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from broker.core.catalog import resource_cache
from broker.core.catalog import subscription_rows as subscriptions
from broker.core.catalog import topic_rows as topics
from broker.core.catalog.resource_cache import ResourceCache
from broker.core.process.tasks import Tasks
from broker.db.driver.database import Database, ResourceConnection
from broker.model.errors import NotFound, Unavailable
from broker.model.subscription import Subscription
from broker.model.topic import Topic
from tests.fixtures.broker import eventually
from tests.interleavings.steps import execute, open_transaction, until_waiting

TOPIC = "projects/p/topics/t"


def name(number: int) -> str:
    return f"projects/p/subscriptions/sub{number}"


@pytest.fixture
async def cache(database: Database, now: datetime) -> AsyncIterator[ResourceCache]:
    async with database.transaction() as connection:
        topic = await topics.insert_topic(connection, topic=Topic(name=TOPIC), shard_count=1, now=now)
        assert topic is not None
        for number in range(450):
            wanted = Subscription(name=name(number), topic=TOPIC)
            await subscriptions.insert_subscription(
                connection, subscription=wanted, topic_id=topic.topic_id, now=now
            )
    tasks = Tasks()
    yield ResourceCache(database, tasks)
    await tasks.close()


async def test_each_caller_gets_its_own(cache: ResourceCache) -> None:
    found = await asyncio.gather(*(cache.subscription(name(number)) for number in range(450)))
    assert [subscription.name for subscription in found] == [name(number) for number in range(450)]
    assert (await cache.topic(TOPIC)).name == TOPIC
    assert await cache.subscription(name(3)) is found[3], "kept"


async def test_one_that_is_missing_fails_alone(cache: ResourceCache) -> None:
    found = await asyncio.gather(
        cache.subscription(name(1)),
        cache.subscription(name(-1)),
        cache.subscription(name(2)),
        return_exceptions=True,
    )
    assert isinstance(found[1], NotFound)
    assert [s.name for s in (found[0], found[2]) if isinstance(s, Subscription)] == [name(1), name(2)]


async def test_what_was_dropped_is_read_again(cache: ResourceCache, database: Database) -> None:
    before = await cache.subscription(name(1))
    async with database.transaction() as connection:
        await subscriptions.delete_subscription(connection, subscription_id=before.subscription_id)
    cache.drop(name(1))
    with pytest.raises(NotFound):
        await cache.subscription(name(1))


async def test_resources_of_a_feature_are_read_once_and_again_when_they_have_changed(cache: ResourceCache) -> None:
    asked: list[str] = []

    async def read(connection: ResourceConnection, *, names: Sequence[str]) -> Mapping[str, int]:
        asked.extend(names)
        return {name: len(asked) for name in names if name != "missing"}

    added = cache.add(read)
    assert [await added.get("one"), await added.get("one"), await added.get("missing")] == [1, 1, None]
    cache.drop("another")
    assert await added.get("one") == 1
    cache.drop("one")
    assert await added.get("one") == 3
    cache.drop(None)
    assert await added.get("one") == 4


async def test_what_is_dropped_while_it_is_read_is_not_kept_and_the_rest_is(
    cache: ResourceCache, database: Database
) -> None:
    """What was read may be older than the change, so nobody may wait with it for the next one."""
    async with open_transaction(database) as holding:
        await execute(holding, "LOCK TABLE subscriptions")
        names = [name(1), name(2)]
        reading = asyncio.gather(*map(cache.subscription, names))
        await until_waiting(database)
        cache.drop(name(1))
        cache.drop(name(3))
    changed, kept = await reading
    assert not cache.is_current(changed)
    assert cache.is_current(kept)
    again = await cache.subscription(name(1))
    cache.forget(changed)
    assert cache.is_current(again), "what was read later is newer"
    cache.forget(again)
    assert not cache.is_current(again)


async def test_a_read_hears_what_is_dropped_after_the_end_of_another_one(
    cache: ResourceCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One read serves callers while another one refreshes what is in use."""
    monkeypatch.setattr(resource_cache, "AGEING_SECONDS", -1.0)
    monkeypatch.setattr(resource_cache, "REFRESH_PAUSE_SECONDS", 0.0)
    await cache.subscription(name(1))
    entries, began, may_end = cache._subscriptions, asyncio.Event(), asyncio.Event()
    load = entries._load

    async def slow(names: Sequence[str]) -> Mapping[str, Subscription]:
        if name(1) in names:
            began.set()
            await may_end.wait()
        return await load(names)

    monkeypatch.setattr(entries, "_load", slow)
    await cache.subscription(name(1))  # it is refreshed from now on
    await began.wait()
    await cache.subscription(name(2))
    cache.drop(name(1))
    refreshing = [task for task in asyncio.all_tasks() if task.get_name() == "refresh resources"]
    may_end.set()
    await asyncio.gather(*refreshing)
    assert entries.peek(name(1)) is None


async def test_what_is_in_use_is_read_again_while_nobody_waits(
    cache: ResourceCache, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a notification that was lost is made good for, and callers need not wait for it."""
    monkeypatch.setattr(resource_cache, "AGEING_SECONDS", -1.0)
    monkeypatch.setattr(resource_cache, "REFRESH_PAUSE_SECONDS", 0.01)
    kept, gone = await cache.subscription(name(1)), await cache.subscription(name(2))
    async with database.transaction() as connection:
        await subscriptions.update_subscription(
            connection, subscription=replace(kept, ack_deadline_seconds=77), now=datetime.now(UTC)
        )
        await subscriptions.delete_subscription(connection, subscription_id=gone.subscription_id)
    assert await cache.subscription(name(1)) is kept, "served at once"
    assert await cache.subscription(name(2)) is gone

    async def seen() -> bool:
        with contextlib.suppress(NotFound):
            await cache.subscription(name(2))
            return False
        return (await cache.subscription(name(1))).ack_deadline_seconds == 77

    await eventually(seen)


async def test_a_caller_that_leaves_does_not_take_the_others_along(cache: ResourceCache) -> None:
    leaving = asyncio.create_task(cache.subscription(name(1)))
    staying = asyncio.create_task(cache.subscription(name(1)))
    await asyncio.sleep(0)
    leaving.cancel()
    assert (await staying).name == name(1)


async def test_without_the_database_all_that_asked_are_told() -> None:
    tasks = Tasks()
    cache = ResourceCache(Database("postgresql://nobody@127.0.0.1:1/none"), tasks)
    outcomes = await asyncio.gather(cache.topic(TOPIC), cache.topic(TOPIC), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Unavailable, Unavailable]
    await tasks.close()


async def test_the_one_that_is_meant_is_told_from_another_of_its_name(cache: ResourceCache, now: datetime) -> None:
    """What is known may be older than what is meant: then it is read anew."""
    old, of_old = await cache.topic(TOPIC), await cache.subscription(name(0))
    async with cache._database.transaction() as connection:
        await topics.delete_topic(connection, topic=old)
        new = await topics.insert_topic(connection, topic=Topic(name=TOPIC), shard_count=1, now=now)
    assert new is not None
    assert await cache.topic(TOPIC) is old
    assert (await cache.topic_meant(TOPIC, new.topic_id)).topic_id == new.topic_id
    with pytest.raises(NotFound, match="The topic was deleted, another has its name"):
        await cache.topic_meant(TOPIC, old.topic_id)
    assert await cache.subscription_meant(name(0), of_old.subscription_id)
    with pytest.raises(NotFound, match="The subscription was deleted, another has its name"):
        await cache.subscription_meant(name(0), -1)
