"""Returns the retained messages of a topic one by one, as fast as the caller reads them (G2); an extension."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from broker.core.catalog import subscription_rows as subscriptions
from broker.core.catalog import topic_rows as topics
from broker.core.filtering.changes import compiled
from broker.core.filtering.jsonpath import FilterPaths
from broker.core.log.copying import check_span
from broker.core.log.log_page import LogPosition, MatchedMessage
from broker.core.log.published import list_published, read_shard_ends
from broker.core.process.database_clock import DatabaseClock
from broker.core.process.tails import Tail, Tails
from broker.core.resources.topic_service import topic_not_found
from broker.db.driver.database import Database
from broker.db.driver.replica_reads import ReplicaReads
from broker.fairness.resource_turns import ResourceTurns
from broker.model.errors import Unavailable
from broker.model.names import project_of
from broker.model.timestamps import END_OF_TIME
from broker.model.topic import Topic

Messages = Sequence[MatchedMessage]
Pages = AsyncGenerator[Messages, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """The messages to export; times None: any."""

    filter: str = ""
    start_time: datetime | None = None
    end_time: datetime | None = None


class ExportService:
    """Reading only.  It holds a megabyte, or one message that is larger, and reads on when that is taken."""

    def __init__(
        self,
        database: Database,
        replica_reads: ReplicaReads,
        clock: DatabaseClock,
        turns: ResourceTurns,
        tails: Tails,
    ) -> None:
        """`turns` are those of calls that inspect; an export is one of the `tails` that may be open."""
        self._database = database
        self._replica_reads = replica_reads
        self._clock = clock
        self._turns = turns
        self._tails = tails

    @asynccontextmanager
    async def export(self, name: str, options: ExportOptions) -> AsyncIterator[Pages]:
        """Pages of what the topic had retained when it was asked for, shard after shard in the order of the log.

        Raises InvalidArgument (the filter, the times), NotFound, ResourceExhausted (too many are open); while it is
        read also Unavailable (the broker stops), NotFound (the topic was deleted or purged).
        """
        check_span(options.start_time, options.end_time)
        paths = compiled(options.filter)
        topic, since = await self._existing(name)
        since = max(since, options.start_time or since)
        tail = self._tails.open(project_of(name), ())
        try:
            async with self._turns.of(tail.project, is_short=True), self._database.hot() as connection:
                ends = await read_shard_ends(connection, shard_ids=topic.shard_ids)
            yield self._read(tail, topic, ends, since, options.end_time or END_OF_TIME, paths)
        finally:
            self._tails.close(tail)

    async def _read(
        self,
        tail: Tail,
        topic: Topic,
        ends: dict[int, LogPosition],
        since: datetime,
        until: datetime,
        paths: FilterPaths,
    ) -> Pages:
        for shard_id, end in sorted(ends.items()):
            after = LogPosition(shard_id, since, -1)
            more = True
            while more:
                if tail.stopping:
                    raise Unavailable("The broker stops; export again what is missing.")
                found, read = await self._read_page(tail, topic, after, paths)
                more = read != after and read.seq < end.seq and read.publish_time < until
                after = read
                page = [each for each in found if each.seq <= end.seq and each.publish_time < until]
                if page:
                    yield page

    async def _read_page(
        self, tail: Tail, topic: Topic, after: LogPosition, paths: FilterPaths
    ) -> tuple[Messages, LogPosition]:
        async with self._turns.of(tail.project, is_short=True):
            now, _ = await self._existing(topic.name)
            if now.shard_ids != topic.shard_ids:
                raise topic_not_found(topic.name)
            query = partial(list_published, after=after, filter_path=paths.filter_path, body_path=paths.body_path)
            return await self._replica_reads.read(query)

    async def _existing(self, name: str) -> tuple[Topic, datetime]:
        """The topic, and since when it retains messages."""
        async with self._database.transaction() as connection:
            topic = await topics.find_topic(connection, name=name)
            if topic is None:
                raise topic_not_found(name)
            longest = await subscriptions.longest_retention(connection, topic_id=topic.topic_id)
        retained = max(longest or timedelta(0), topic.message_retention or timedelta(0))
        return topic, self._clock.now() - retained
