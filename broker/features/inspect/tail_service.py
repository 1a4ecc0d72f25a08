"""Follows the messages that are published on a topic, from now or from an earlier time on (F3); an extension."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Hashable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from broker.core.catalog import subscription_rows as subscriptions
from broker.core.catalog import topic_rows as topics
from broker.core.filtering.changes import compiled
from broker.core.filtering.jsonpath import FilterPaths
from broker.core.log.log_page import LogPosition, MatchedMessage
from broker.core.log.published import list_published, read_shard_ends
from broker.core.process.database_clock import DatabaseClock
from broker.core.process.tails import Tails
from broker.core.process.tasks import Tasks
from broker.core.resources.topic_service import topic_not_found
from broker.db.driver.database import Database
from broker.fairness.resource_turns import ResourceTurns
from broker.features.inspect.shared_tail import Reader, Reading, SharedTail
from broker.features.inspect.tail_position import Positions, position_token
from broker.features.inspect.tail_rows import find_oldest
from broker.model.errors import InvalidArgument
from broker.model.message_preview import WHOLE
from broker.model.names import project_of
from broker.model.topic import Topic

WAIT_SECONDS = 15.0  # without a message; then readers get an empty value
PAUSE_SECONDS = 0.1  # between two reads: the cost of a tail does not depend on how much is published
MAX_BEHIND = 10_000  # messages; a tail that is further behind skips them, and reports how many


@dataclass(frozen=True, slots=True)
class TailOptions:
    """Options of a reader.

    `filter`: a filter of messages ("": all).  `preview_bytes`: the number of bytes of each message's data that are
    shown.  The tail begins after the positions `after`, else at the time `since`, else now.
    """

    filter: str = ""
    preview_bytes: int = WHOLE
    since: datetime | None = None
    after: Positions | None = None


@dataclass(frozen=True, slots=True)
class NewMessages:
    """Messages with the ids of their events; before them, `skipped` messages up to `skipped_id` were left out."""

    messages: Sequence[tuple[str, MatchedMessage]] = ()
    skipped: int = 0
    skipped_id: str = ""


class TailService:
    """Follows topics.  It changes, locks and delivers nothing."""

    def __init__(
        self, database: Database, *, clock: DatabaseClock, tasks: Tasks, turns: ResourceTurns, tails: Tails
    ) -> None:
        """Limits concurrent reads of the log by `turns`, which all expensive reads share."""
        self._database = database
        self._clock = clock
        self._tasks = tasks
        self._turns = turns
        self._tails = tails
        self._shared: dict[Hashable, SharedTail] = {}

    @asynccontextmanager
    async def tail(self, topic_name: str, options: TailOptions) -> AsyncIterator[AsyncIterator[NewMessages]]:
        """Opens a tail that yields new messages, or an empty value at least every WAIT_SECONDS.

        The tail ends when the broker stops.  Raises InvalidArgument (the filter; positions of another topic),
        NotFound (also when the topic is deleted meanwhile), ResourceExhausted (too many tails), Unavailable.
        """
        paths = compiled(options.filter)
        topic = await self._topic(topic_name)
        shared = self._share(topic, options, paths)
        reader = shared.enter()
        try:
            await shared.begun.wait()
            if shared.error is not None:
                raise shared.error
            skipped, positions = await self._begin(topic, options)
            yield self._follow(reader, shared, paths, options, skipped, positions)
        finally:
            self._leave(shared, reader)

    # --- the shared reading -----------------------------------------------------------------------------------

    def _share(self, topic: Topic, options: TailOptions, paths: FilterPaths) -> SharedTail:
        key = (topic.topic_id, tuple(topic.shard_ids), options.filter, options.preview_bytes)
        shared = self._shared.get(key)
        if shared is None:
            tail = self._tails.open(project_of(topic.name), topic.shard_ids)
            shared = self._shared[key] = SharedTail(key, tail)
            self._tasks.start(self._run(shared, topic, paths, options.preview_bytes), name="tail of a topic")
        return shared

    def _leave(self, shared: SharedTail, reader: Reader) -> None:
        shared.leave(reader)
        if not shared.is_read:
            self._close(shared)

    def _close(self, shared: SharedTail) -> None:
        """Ends the reading of a tail, and lets others open a new one in its place."""
        if self._shared.get(shared.key) is shared:
            del self._shared[shared.key]
            self._tails.close(shared.tail)
            shared.tail.stopping = True
            shared.tail.arrived.set()

    async def _run(self, shared: SharedTail, topic: Topic, paths: FilterPaths, preview_bytes: int) -> None:
        error: Exception | None = None
        try:
            async with self._database.hot() as connection:
                shared.positions |= await read_shard_ends(connection, shard_ids=topic.shard_ids)
            shared.begun.set()
            await self._read_on(shared, topic, paths, preview_bytes)
        except Exception as caught:  # each reader raises it
            error = caught
        finally:
            self._close(shared)
            shared.end(error)

    async def _read_on(self, shared: SharedTail, topic: Topic, paths: FilterPaths, preview_bytes: int) -> None:
        tail = shared.tail
        while not tail.stopping:
            if not await tail.wait(WAIT_SECONDS):
                if (await self._topic(topic.name)).topic_id != topic.topic_id:
                    raise topic_not_found(topic.name)
                continue
            for shard_id in tail.shard_ids:
                if tail.stopping or shard_id not in shared.positions:
                    continue
                reading, is_behind = await self._read(
                    tail.project, shared.positions[shard_id], paths, preview_bytes, max_behind=MAX_BEHIND
                )
                shared.read(reading)
                if is_behind:
                    tail.arrived.set()
            await asyncio.sleep(PAUSE_SECONDS)

    async def _read(
        self,
        project: str,
        after: LogPosition,
        paths: FilterPaths,
        preview_bytes: int,
        *,
        max_behind: int | None = None,
    ) -> tuple[Reading, bool]:
        """Reads the next messages of a shard.  Returns whether there are more."""
        async with self._turns.of(project, is_short=True), self._database.hot() as connection:
            ends = await read_shard_ends(connection, shard_ids=[after.shard_id])
            end = ends.get(after.shard_id, after)  # the topic may be deleted
            if max_behind is not None and end.seq - after.seq > max_behind:
                return Reading(end, skipped=end.seq - after.seq), False
            messages, read = await list_published(
                connection,
                after=after,
                filter_path=paths.filter_path,
                body_path=paths.body_path,
                preview_bytes=preview_bytes,
            )
        if read == after:  # no message follows it
            return Reading(end if end.seq > after.seq else after), False
        return Reading(read, messages), read.seq < end.seq

    # --- one reader -------------------------------------------------------------------------------------------

    async def _begin(self, topic: Topic, options: TailOptions) -> tuple[int, dict[int, LogPosition]]:
        """Returns how many messages a reader has missed that are no longer retained, and where it begins in each
        shard.
        """
        async with self._database.hot() as connection:
            ends = await read_shard_ends(connection, shard_ids=topic.shard_ids)
        if len(ends) < len(topic.shard_ids):
            raise topic_not_found(topic.name)
        if options.after is None and options.since is None:
            return 0, ends
        now = self._clock.now()
        async with self._database.transaction() as connection_:
            retention = await subscriptions.longest_retention(connection_, topic_id=topic.topic_id)
        since = now - max(retention or timedelta(0), topic.message_retention or timedelta(0))
        if options.after is None:
            start = max(min(options.since or now, now), since)
            return 0, {shard_id: LogPosition(shard_id, start, -1) for shard_id in ends}
        if not options.after.keys() & ends.keys():
            raise InvalidArgument(
                "Last-Event-ID is of another topic, or of before a purge "
                f"(Last-Event-ID={position_token(options.after)[:100]})."
            )
        skipped, positions = 0, {}
        for shard_id, end in ends.items():
            after = options.after.get(shard_id, LogPosition(shard_id, since, -1))  # a shard that was added later
            if after.publish_time < since and 0 <= after.seq < end.seq:
                async with self._database.hot() as connection:
                    oldest = await find_oldest(connection, shard_id=shard_id, since=since)
                before = end.seq if oldest is None else oldest - 1
                skipped += max(before - after.seq, 0)
                after = LogPosition(shard_id, since, max(before, after.seq))
            # A position beyond the end is from before a backup was restored.
            positions[shard_id] = min(after, end, key=lambda each: each.seq)
        return skipped, positions

    async def _follow(
        self,
        reader: Reader,
        shared: SharedTail,
        paths: FilterPaths,
        options: TailOptions,
        skipped: int,
        positions: dict[int, LogPosition],
    ) -> AsyncIterator[NewMessages]:
        if skipped:
            yield NewMessages(skipped=skipped, skipped_id=position_token(positions))
        async with aclosing(self._catch_up(reader, shared, paths, options, positions)) as earlier:
            async for new_messages in earlier:
                yield new_messages
        while True:
            while reader.queue:
                if taken := _taken(reader.queue.popleft(), positions):
                    yield taken
            if shared.error is not None:
                raise shared.error
            if shared.has_ended:
                return
            await reader.wait(WAIT_SECONDS)
            if not (reader.queue or shared.has_ended):
                yield NewMessages()

    async def _catch_up(
        self,
        reader: Reader,
        shared: SharedTail,
        paths: FilterPaths,
        options: TailOptions,
        positions: dict[int, LogPosition],
    ) -> AsyncGenerator[NewMessages, None]:
        """Yields the messages between a reader's positions and the shared tail, and ends when the reader has joined
        that.
        """
        while not (shared.has_ended or shared.join(reader, positions)):
            before = dict(positions)
            for shard_id in sorted(positions):
                reading, _ = await self._read(
                    shared.tail.project, positions[shard_id], paths, options.preview_bytes
                )
                if new_messages := _taken(reading, positions):
                    yield new_messages
            if positions == before:
                await asyncio.sleep(PAUSE_SECONDS)

    async def _topic(self, name: str) -> Topic:
        async with self._database.transaction() as connection:
            found = await topics.find_topic(connection, name=name)
        if found is None:
            raise topic_not_found(name)
        return found


def _taken(reading: Reading, positions: dict[int, LogPosition]) -> NewMessages | None:
    """Returns the messages of a reading that are new to a reader, and moves its positions; None if
    there are none.
    """
    shard_id, before = reading.position.shard_id, positions[reading.position.shard_id]
    if reading.position.seq <= before.seq:
        return None
    skipped = min(reading.skipped, reading.position.seq - before.seq)
    messages = []
    for message in reading.messages:
        if message.seq > before.seq:
            positions[shard_id] = LogPosition(shard_id, message.publish_time, message.seq)
            messages.append((position_token(positions), message))
    positions[shard_id] = reading.position
    if not (messages or skipped):
        return None
    return NewMessages(messages, skipped, position_token(positions) if skipped else "")
