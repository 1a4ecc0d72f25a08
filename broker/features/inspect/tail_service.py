"""What is published on a topic, as it comes (F3); an extension."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from broker.core.catalog import topic_rows as topics
from broker.core.filtering.changes import compiled
from broker.core.filtering.jsonpath import FilterPaths
from broker.core.log.log_page import LogPosition, MatchedMessage
from broker.core.log.published import list_published, read_shard_ends
from broker.core.process.tails import Tail, Tails
from broker.core.resources.topic_service import topic_not_found
from broker.db.driver.database import Database
from broker.fairness.resource_turns import ResourceTurns
from broker.model.names import project_of
from broker.model.topic import Topic

WAIT_SECONDS = 15.0  # for the next message; then whoever reads is told that the tail is alive
PAUSE_SECONDS = 0.1  # between two checks: a tail costs the database the same however much is published
MAX_BEHIND = 10_000  # messages; a tail that is further behind leaves them out, and says so


@dataclass(frozen=True, slots=True)
class NewMessages:
    """What a check has found; so many messages before that were left out (`skipped`)."""

    messages: Sequence[MatchedMessage] = field(default=())
    skipped: int = 0


class TailService:
    """Reading only: nothing is changed, locked or delivered."""

    def __init__(self, database: Database, turns: ResourceTurns, tails: Tails) -> None:
        """`turns` are those of calls that inspect."""
        self._database = database
        self._turns = turns
        self._tails = tails

    @asynccontextmanager
    async def tail(self, topic_name: str, text: str) -> AsyncIterator[AsyncIterator[NewMessages]]:
        """What is published from now on, as far as a filter matches it; empty: everything.

        Something comes at least every WAIT_SECONDS, be it empty.  It ends when the broker stops.  Raises
        InvalidArgument (the filter), NotFound (also when the topic is deleted meanwhile), ResourceExhausted (too
        many tails), Unavailable.
        """
        paths = compiled(text)
        topic = await self._topic(topic_name)
        tail = self._tails.open(project_of(topic_name), topic.shard_ids)
        try:
            async with self._database.hot() as connection:
                ends = await read_shard_ends(connection, shard_ids=topic.shard_ids)
            yield self._follow(tail, topic, ends, paths)
        finally:
            self._tails.close(tail)

    async def _follow(
        self, tail: Tail, topic: Topic, positions: dict[int, LogPosition], paths: FilterPaths
    ) -> AsyncIterator[NewMessages]:
        while not tail.stopping:
            if not await tail.wait(WAIT_SECONDS):
                if (await self._topic(topic.name)).topic_id != topic.topic_id:
                    raise topic_not_found(topic.name)
                yield NewMessages()
                continue
            for shard_id in tail.shard_ids:
                if tail.stopping:
                    return
                new_messages, positions[shard_id], is_behind = await self._read(tail, positions[shard_id], paths)
                if is_behind:
                    tail.arrived.set()
                if new_messages.messages or new_messages.skipped:
                    yield new_messages
            await asyncio.sleep(PAUSE_SECONDS)

    async def _read(
        self, tail: Tail, after: LogPosition, paths: FilterPaths
    ) -> tuple[NewMessages, LogPosition, bool]:
        """The next messages of a shard, the position that they were read to, and whether there are more."""
        async with self._turns.of(tail.project, is_short=True), self._database.hot() as connection:
            ends = await read_shard_ends(connection, shard_ids=[after.shard_id])
            end = ends.get(after.shard_id, after)  # the topic may be deleted
            if end.seq - after.seq > MAX_BEHIND:
                return NewMessages(skipped=end.seq - after.seq), end, False
            messages, read = await list_published(
                connection, after=after, filter_path=paths.filter_path, body_path=paths.body_path
            )
        return NewMessages(messages), read, read.seq < end.seq

    async def _topic(self, name: str) -> Topic:
        async with self._database.transaction() as connection:
            found = await topics.find_topic(connection, name=name)
        if found is None:
            raise topic_not_found(name)
        return found
