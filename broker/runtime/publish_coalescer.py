"""Concurrent publishes to a shard become one commit (C7).

Natural batching, no timer: a flush takes everything that queued up while the last one was in flight, so a lone
publish waits for nothing.  One flush is in flight per shard and process: the shard's row is locked until commit,
a second would only wait for it, and could overtake.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime

from broker.domain.errors import Aborted, BrokerError, NotFound, ResourceExhausted, Unavailable
from broker.runtime.database_clock import DatabaseClock
from broker.runtime.retrying import retrying
from broker.runtime.tasks import Tasks
from broker.runtime.wake_ups import WakeUps
from broker.store.database import Database
from broker.store.messages import Appended, EncodedMessages, PartitionMissing, append_messages
from broker.store.partitions import make_partitions_ahead

MAX_FLUSH_MESSAGES = 4_000  # past some thousand rows a larger commit gains nothing
MAX_FLUSH_BYTES = 16_000_000
MAX_QUEUED_BYTES = 256_000_000  # in all shards; past it publishes are refused rather than memory used up


@dataclass(slots=True)
class _Publish:
    batch: EncodedMessages
    appended: asyncio.Future[Appended]


@dataclass(slots=True)
class _ShardQueue:
    waiting: deque[_Publish] = field(default_factory=deque)
    flushing: bool = False  # owned by _run


class PublishCoalescer:
    """Appends messages to shards.  Each shard's queue is flushed by at most one task."""

    def __init__(self, database: Database, clock: DatabaseClock, wake_ups: WakeUps, tasks: Tasks) -> None:
        self._database = database
        self._clock = clock
        self._wake_ups = wake_ups
        self._tasks = tasks
        self._queues: dict[int, _ShardQueue] = {}
        self._queued_bytes = 0

    async def publish(self, shard_id: int, batch: EncodedMessages) -> Appended:
        """Append a request's messages; returns once they are durable.

        Raises NotFound if the shard's topic was deleted, ResourceExhausted if too much is waiting already, and
        Unavailable if it is not known whether the messages were stored; that is never retried here, since a
        repeated publish would store them twice.
        """
        if self._queued_bytes > MAX_QUEUED_BYTES:
            raise ResourceExhausted("Too many messages wait to be stored; slow down and try again.")
        queue = self._queues.get(shard_id)
        if queue is None:
            queue = self._queues[shard_id] = _ShardQueue()
        publish = _Publish(batch, asyncio.get_running_loop().create_future())
        queue.waiting.append(publish)
        self._queued_bytes += batch.size
        if not queue.flushing:
            queue.flushing = True
            self._tasks.start(self._run(shard_id, queue), name=f"flush shard {shard_id}")
        return await publish.appended

    async def _run(self, shard_id: int, queue: _ShardQueue) -> None:
        try:
            while queue.waiting:
                publishes = _take(queue.waiting)
                await self._flush(shard_id, publishes)
                self._queued_bytes -= sum(publish.batch.size for publish in publishes)
        finally:
            queue.flushing = False
            if not queue.waiting:
                self._queues.pop(shard_id, None)

    async def _flush(self, shard_id: int, publishes: list[_Publish]) -> None:
        try:
            await self._append(shard_id, publishes)
            self._wake_ups.published(shard_id)
        except Unavailable as error:
            _fail(publishes, error)
        except BrokerError as error:
            if len(publishes) == 1:
                _fail(publishes, error)
            else:  # one bad message must fail its own request only
                for publish in publishes:
                    await self._flush(shard_id, [publish])
        except BaseException:
            _fail(publishes, Unavailable("The broker stopped while it stored the messages."))
            raise

    async def _append(self, shard_id: int, publishes: list[_Publish]) -> None:
        batches = [publish.batch for publish in publishes]
        # Aborted: PostgreSQL undid it, nothing was stored.
        appended = await retrying(lambda: self._append_or_make_partition(shard_id, batches), Aborted)
        if appended is None:
            raise NotFound("Topic not found: it was deleted.")
        first_seq, publish_time = appended
        for publish in publishes:
            if not publish.appended.done():
                publish.appended.set_result(Appended(first_seq, publish_time))
            first_seq += publish.batch.count

    async def _append_or_make_partition(self, shard_id: int, batches: list[EncodedMessages]) -> Appended | None:
        try:
            return await self._append_once(shard_id, batches)
        except PartitionMissing:
            async with self._database.connection() as connection:
                await make_partitions_ahead(connection, now=self._clock.now())
            return await self._append_once(shard_id, batches)

    async def _append_once(self, shard_id: int, batches: list[EncodedMessages]) -> Appended | None:
        async with self._database.hot() as connection:
            return await append_messages(connection, shard_id=shard_id, batches=batches, now=self._publish_time())

    def _publish_time(self) -> datetime:
        # Milliseconds, as on the wire: seeking to a time that a client was shown must mean that very message.
        now = self._clock.now()
        return now.replace(microsecond=now.microsecond // 1000 * 1000)


def _take(waiting: deque[_Publish]) -> list[_Publish]:
    taken: list[_Publish] = []
    messages = size = 0
    while waiting:
        batch = waiting[0].batch
        messages, size = messages + batch.count, size + batch.size
        if taken and (messages > MAX_FLUSH_MESSAGES or size > MAX_FLUSH_BYTES):
            break
        taken.append(waiting.popleft())
    return taken


def _fail(publishes: list[_Publish], error: BrokerError) -> None:
    for publish in publishes:
        if not publish.appended.done():
            publish.appended.set_exception(error)
