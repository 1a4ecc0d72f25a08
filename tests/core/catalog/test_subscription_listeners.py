"""Features hear of subscriptions as they are read, are changed, and go away."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime

import pytest

from broker.core.catalog import resource_cache
from broker.core.catalog import subscription_rows as subscriptions
from broker.core.catalog import topic_rows as topics
from broker.core.catalog.resource_cache import ResourceCache
from broker.core.catalog.subscription_listener import SubscriptionListener
from broker.core.process.tasks import Tasks
from broker.db.driver.database import Database
from broker.model.errors import NotFound
from broker.model.subscription import Subscription
from broker.model.topic import Topic

TOPIC = "projects/p/topics/t"
ONE, OTHER, MISSING = (f"projects/p/subscriptions/{name}" for name in ("one", "other", "missing"))

StartCache = Callable[[Sequence[SubscriptionListener]], ResourceCache]


class Heard:
    """A SubscriptionListener that keeps what it hears."""

    def __init__(self, *interesting: str) -> None:
        self._names = interesting
        self.read, self.gone = asyncio.Queue[str](), asyncio.Queue[str]()

    def subscription_read(self, subscription: Subscription) -> None:
        self.read.put_nowait(subscription.name)

    def subscription_gone(self, name: str) -> None:
        self.gone.put_nowait(name)

    def is_interested(self, name: str) -> bool:
        return name in self._names


@pytest.fixture
async def start(database: Database, tasks: Tasks, now: datetime) -> StartCache:
    async with database.transaction() as connection:
        topic = await topics.insert_topic(connection, topic=Topic(name=TOPIC), shard_count=1, now=now)
        assert topic is not None
        for name in (ONE, OTHER):
            await subscriptions.insert_subscription(
                connection, subscription=Subscription(name=name, topic=TOPIC), topic_id=topic.topic_id, now=now
            )

    def start(listeners: Sequence[SubscriptionListener]) -> ResourceCache:
        cache = ResourceCache(database, tasks)
        cache.add_listeners(listeners)
        return cache

    return start


async def test_every_listener_hears_of_each_subscription_that_is_read_and_of_each_that_is_gone(
    start: StartCache,
) -> None:
    listeners = (Heard(), Heard())
    cache = start(listeners)
    await cache.subscription(ONE)
    with pytest.raises(NotFound):
        await cache.subscription(MISSING)
    cache.report_read(await cache.subscription(ONE))
    cache.report_gone(OTHER)
    for heard in listeners:
        assert [heard.read.get_nowait(), heard.read.get_nowait()] == [ONE, ONE]
        assert [heard.gone.get_nowait(), heard.gone.get_nowait()] == [MISSING, OTHER]
        assert heard.read.empty()
        assert heard.gone.empty()


async def test_what_interests_a_listener_is_read_again_once_it_changes(
    start: StartCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else may ask for it: a subscription that nobody pulls, whose dead letters are refused."""
    monkeypatch.setattr(resource_cache, "REFRESH_PAUSE_SECONDS", 0.0)
    heard = Heard(ONE)
    cache = start((Heard(), heard))
    cache.drop(OTHER)
    cache.drop(ONE)
    assert await heard.read.get() == ONE
    assert heard.read.empty(), "no listener is interested in the other one"


async def test_without_listeners_subscriptions_are_read_all_the_same(start: StartCache) -> None:
    cache = start(())
    cache.report_read(await cache.subscription(ONE))
    cache.report_gone(ONE)
    cache.drop(ONE)
    assert (await cache.subscription(ONE)).name == ONE
