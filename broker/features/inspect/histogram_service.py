"""The histogram of a topic's log; an extension (F3)."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial

from broker.core.catalog import subscription_rows as subscriptions
from broker.core.catalog import topic_rows as topics
from broker.core.process.database_clock import DatabaseClock
from broker.core.resources.topic_service import topic_not_found
from broker.db.driver.database import Database
from broker.db.driver.replica_reads import ReplicaReads
from broker.fairness.resource_turns import ResourceTurns
from broker.features.inspect.histogram import Histogram, HistogramOptions, check_shards
from broker.features.inspect.histogram_rows import read_histogram
from broker.model.names import project_of

HungUp = Callable[[], Awaitable[None]]


class HistogramService:
    """Reads histograms.  It changes, locks and delivers nothing."""

    def __init__(
        self, database: Database, replica_reads: ReplicaReads, clock: DatabaseClock, turns: ResourceTurns
    ) -> None:
        """Limits concurrent reads by `turns`, which all expensive reads share."""
        self._database = database
        self._replica_reads = replica_reads
        self._clock = clock
        self._turns = turns

    async def get_histogram(
        self, topic_name: str, options: HistogramOptions, *, hung_up: HungUp | None = None
    ) -> Histogram:
        """Returns the histogram of the messages that a topic retains.

        Raises InvalidArgument (too many buckets for the topic's shards), NotFound, Unavailable (too many such
        calls).
        """
        async with self._turns.of(project_of(topic_name), hung_up=hung_up):
            async with self._database.transaction() as connection:
                topic = await topics.find_topic(connection, name=topic_name)
                if topic is None:
                    raise topic_not_found(topic_name)
                retention = await subscriptions.longest_retention(connection, topic_id=topic.topic_id)
            check_shards(options.buckets, len(topic.shard_ids))
            now = self._clock.now()
            read = partial(
                read_histogram,
                shard_ids=sorted(topic.shard_ids),
                retained_since=now - max(retention or timedelta(0), topic.message_retention or timedelta(0)),
                now=now,
                options=options,
            )
            return await self._replica_reads.read(read)
