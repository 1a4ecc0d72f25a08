"""Lists the messages that a topic retains (F3); an extension."""

from collections.abc import Awaitable, Callable
from dataclasses import astuple
from datetime import timedelta
from functools import partial

from broker.core.catalog import subscription_rows as subscriptions
from broker.core.catalog import topic_rows as topics
from broker.core.filtering.changes import compiled
from broker.core.process.database_clock import DatabaseClock
from broker.core.resources.topic_service import topic_not_found
from broker.db.driver.database import Database
from broker.db.driver.replica_reads import ReplicaReads
from broker.fairness.resource_turns import ResourceTurns
from broker.features.inspect.topic_page import TopicMessages, TopicPage
from broker.features.inspect.topic_rows import Asked, list_topic_messages
from broker.model.names import project_of
from broker.model.page import invalid_page_token, page_token

HungUp = Callable[[], Awaitable[None]]


class TopicMessageService:
    """Lists messages of topics.  It changes, locks and delivers nothing."""

    def __init__(
        self, database: Database, replica_reads: ReplicaReads, clock: DatabaseClock, turns: ResourceTurns
    ) -> None:
        """Limits concurrent lists by `turns`, which all expensive reads share."""
        self._database = database
        self._replica_reads = replica_reads
        self._clock = clock
        self._turns = turns

    async def list_messages(
        self, topic_name: str, page: TopicPage, *, hung_up: HungUp | None = None
    ) -> TopicMessages:
        """Returns a page of the messages that a topic retains, for itself or for any subscription.

        A call that still waits for its turn when its caller disconnects (`hung_up()` completes) is dropped.  Raises
        InvalidArgument (the filter; a page token of another topic), NotFound, Unavailable (too many such calls).
        """
        paths = compiled(page.filter)
        async with self._turns.of(project_of(topic_name), hung_up=hung_up):
            async with self._database.transaction() as connection:
                topic = await topics.find_topic(connection, name=topic_name)
                if topic is None:
                    raise topic_not_found(topic_name)
                retention = await subscriptions.longest_retention(connection, topic_id=topic.topic_id)
            if page.start is not None and page.start.shard_id not in topic.shard_ids:
                raise invalid_page_token(page_token(*astuple(page.start)))
            retained = max(retention or timedelta(0), topic.message_retention or timedelta(0))
            now = self._clock.now()
            asked = Asked(
                shard_ids=sorted(topic.shard_ids),
                filter_path=paths.filter_path,
                body_path=paths.body_path,
                retained_since=now - retained,
                now=now,
                page=page,
            )
            return await self._replica_reads.read(partial(list_topic_messages, asked=asked))
