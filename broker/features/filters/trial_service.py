"""Tests a filter on retained messages, before any subscription has it (A3); an extension."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import astuple
from datetime import datetime, timedelta
from functools import partial

from broker.core.catalog import subscription_rows as subscriptions
from broker.core.catalog import topic_rows as topics
from broker.core.filtering.changes import compiled
from broker.core.filtering.jsonpath import FilterPaths
from broker.core.log.log_page import FilterTest, LogPage
from broker.core.process.database_clock import DatabaseClock
from broker.core.resources.subscription_service import existing_subscription
from broker.core.resources.topic_service import topic_not_found
from broker.db.driver.database import Database
from broker.db.driver.replica_reads import ReplicaReads
from broker.fairness.resource_turns import ResourceTurns
from broker.features.filters import trial_rows as filters
from broker.model.errors import FailedPrecondition
from broker.model.names import leaf, project_of
from broker.model.page import invalid_page_token, page_token

HungUp = Callable[[], Awaitable[None]]


class FilterService:
    """TestFilter, of a topic and of a subscription.  Nothing is changed, locked or delivered.

    Trials take the turns of calls that inspect, by project.  One whose caller goes while it waits (`hung_up()`
    completes) is not begun.  One that is under way goes on: it looks at a bounded number of messages, and
    PostgreSQL would not stop, while the next began.
    """

    def __init__(
        self, database: Database, replica_reads: ReplicaReads, clock: DatabaseClock, turns: ResourceTurns
    ) -> None:
        self._database = database
        self._replica_reads = replica_reads
        self._clock = clock
        self._turns = turns

    async def test_filter(
        self, topic_name: str, text: str, page: LogPage, *, hung_up: HungUp | None = None
    ) -> FilterTest:
        """Returns the messages that a topic retains, for itself or for any subscription, and that a filter matches.

        An empty filter matches all.  Raises InvalidArgument (the filter, and where it goes wrong; a page token of
        another topic), NotFound, Unavailable (too many trials).
        """
        paths = compiled(text)
        async with self._turns.of(project_of(topic_name), hung_up=hung_up):
            return await self._test_topic(topic_name, paths, page)

    async def _test_topic(self, topic_name: str, paths: FilterPaths, page: LogPage) -> FilterTest:
        async with self._database.transaction() as connection:
            topic = await topics.find_topic(connection, name=topic_name)
            if topic is None:
                raise topic_not_found(topic_name)
            retention = await subscriptions.longest_retention(connection, topic_id=topic.topic_id)
        retained = max(retention or timedelta(0), topic.message_retention or timedelta(0))
        return await self._test(topic.shard_ids, paths, self._clock.now() - retained, page)

    async def test_filter_of_subscription(
        self, subscription_name: str, text: str, page: LogPage, *, hung_up: HungUp | None = None
    ) -> FilterTest:
        """Returns the messages that a subscription gets and that a filter matches.

        An empty filter matches all of them.  A caller who may consume a subscription sees no more of its topic: the
        subscription's own filter applies, too, and so does its creation.  Raises InvalidArgument, NotFound,
        FailedPrecondition (detached), Unavailable (too many trials).
        """
        compiled(text)
        async with self._turns.of(project_of(subscription_name), hung_up=hung_up):
            return await self._test_subscription(subscription_name, text, page)

    async def _test_subscription(self, subscription_name: str, text: str, page: LogPage) -> FilterTest:
        async with self._database.transaction() as connection:
            subscription = await existing_subscription(connection, subscription_name)
        if subscription.detached:
            raise FailedPrecondition(f"Subscription is detached (resource={leaf(subscription_name)}).")
        paths = compiled(text, subscription)
        since = subscription.gets_since(self._clock.now())
        return await self._test(subscription.shard_ids, paths, since, page)

    async def _test(
        self, shard_ids: Sequence[int], paths: FilterPaths, retained_since: datetime, page: LogPage
    ) -> FilterTest:
        if page.before is not None and page.before.shard_id not in shard_ids:
            raise invalid_page_token(page_token(*astuple(page.before)))
        query = partial(
            filters.test_filter,
            shard_ids=shard_ids,
            filter_path=paths.filter_path,
            body_path=paths.body_path,
            retained_since=retained_since,
            page=page,
        )
        return await self._replica_reads.read(query)
