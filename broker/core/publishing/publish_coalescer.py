"""Stores concurrent publishes to a shard in one commit (C7).

There is no timer: a flush takes all publishes that were queued while the last one was in flight, so a lone publish
never waits.  Once as many messages are queued as are in flight, a second flush follows the first on the same
connection, without waiting for its answer.  PostgreSQL then has work while the broker handles the answer, and
commits are at least half as large as before.  PostgreSQL runs the two one after the other, so the second never
waits for the shard's row, which is locked until commit.  There are never more than two.

The messages of a request are stored together, in their order.  The requests of a client that waits for each answer
are stored in the order of its calls, because two flushes in flight never hold two of its requests.  Other requests
may be stored in any order: a flush that PostgreSQL undid (Aborted) is sent again, perhaps behind its follower.

A few shards are flushed at a time.  If more have something to flush, projects take turns by the seconds that their
flushes take (fairness/turns.py), and no flush follows another.

A publish is accepted only if it is likely to be stored within MAX_WAIT_SECONDS.  The estimate is the time of a
flush (the average, or the time that the flush in flight has taken so far if that is longer) times the number of
full flushes in the queue.  So a queue refuses publishes when PostgreSQL slows down or stops, and accepts them
again when it recovers.  Publishes that are queued behind a flush of MAX_WAIT_SECONDS are refused too.  A refusal
is ResourceExhausted: nothing was stored.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from time import perf_counter
from typing import Any, cast

from broker.core.context.core import Core
from broker.core.log.known_heads import KnownHeads
from broker.core.log.messages import Appended, EncodedMessages, Stored, append_messages, append_of, appended_each
from broker.core.log.partitions import with_partitions
from broker.core.process.retrying import retrying
from broker.db.driver.hot_connection import HotConnection
from broker.fairness.shared_capacity import SharedCapacity
from broker.fairness.turn_counts import TurnCounts
from broker.fairness.turns import Slot, Turns
from broker.model.errors import Aborted, BrokerError, NotFound, ResourceExhausted, Unavailable
from broker.model.timestamps import whole_milliseconds
from broker.observability.metrics.families import (
    COMMIT_MESSAGES,
    MESSAGE_SIZES,
    PUBLISH_REQUESTS,
    PUBLISHED_BYTES,
    PUBLISHED_MESSAGES,
    REPEATED_MESSAGES,
    SEQUENCING,
)
from broker.observability.timing import TIMING, Timing

MAX_FLUSH_MESSAGES = 4_000  # beyond some thousand rows a larger commit gains nothing
MAX_FLUSH_BYTES = 16_000_000
MIN_FOLLOWING_MESSAGES = 100  # fewer are not worth a commit of their own (docs/decisions/0008)
MAX_QUEUED_BYTES = 256_000_000  # in all shards; beyond it publishes are refused, to bound the memory
LARGE_BYTES = 65_536  # larger requests share the queued bytes by project; smaller ones use the rest
LONG_SECONDS = 0.02  # a project with flushes of this length leaves the last free slot to other projects
MOST_CHARGED_SECONDS = 0.5  # for a flush
MAX_WAIT_SECONDS = 3.0  # longer than the usual stalls of a disk, and far below the timeout of clients (60 s)
_TOO_MANY = "Too many messages wait to be stored; slow down and try again."


@dataclass(slots=True)
class _Publish:
    batch: EncodedMessages
    appended: asyncio.Future[Any]  # of Appended, or of Stored if some messages may be repeats
    arrived: float
    timing: Timing | None  # the timings of its request, where slow requests are logged


@dataclass(slots=True)
class _ShardQueue:
    """The publishes that wait for a flush of a shard.  Times are of perf_counter, finer than the loop's clock."""

    project: str
    topic: str
    waiting: deque[_Publish] = field(default_factory=deque)
    waiting_messages: int = 0
    waiting_bytes: int = 0
    flush_seconds: float = 0.0  # the average time between two answers
    answered_at: float = 0.0  # the time of the last answer, or of the beginning of the first flush
    flushing: int = 0  # tasks in _run, at most two
    flushing_messages: int = 0  # messages in flight
    connection: HotConnection | None = None  # the connection of the last flush, while a flush holds it
    in_flight: int = 0  # flushes that share `slot`, which ends with the last of them
    slot: Slot | None = None


class PublishCoalescer:
    """Appends messages to shards.  Each shard's queue is flushed by at most two tasks."""

    def __init__(self, core: Core, *, shards_at_once: int = 6) -> None:
        """`shards_at_once`: the number of shards that are flushed at a time, each on a connection; 1 or more."""
        self._loop_turns = core.loop_turns
        self._counters = core.counters
        self._database = core.database
        self._clock = core.clock
        self._wake_ups = core.wake_ups
        self._tasks = core.tasks
        self._queues: dict[int, _ShardQueue] = {}
        self._heads = KnownHeads()
        self._queued_bytes = 0
        self._large = SharedCapacity(MAX_QUEUED_BYTES)
        self._turns = Turns(
            shards_at_once,
            long_seconds=LONG_SECONDS,
            max_charged_seconds=MOST_CHARGED_SECONDS,
            tenants=core.tenants,
            counts=TurnCounts(core.counters, "publish"),
        )

    def publish(
        self, shard_id: int, batch: EncodedMessages, *, project: str, topic: str
    ) -> asyncio.Future[Appended]:
        """Append a request's messages to a shard of a `topic` of a `project`; done once they are durable.

        Raises ResourceExhausted if too much is queued already.  Fails with NotFound if the shard's topic was
        deleted, and with Unavailable if the outcome is unknown; this is never retried here, because a repeated
        publish would store the messages twice.
        """
        self.check_capacity(shard_id)
        if batch.size > LARGE_BYTES and self._large.take((project,), amount=batch.size) is not None:
            raise ResourceExhausted(f"Too many bytes of {project} wait to be stored; slow down and try again.")
        queue = self._queues.get(shard_id)
        if queue is None:
            queue = self._queues[shard_id] = _ShardQueue(project, topic)
        now, appended = perf_counter(), asyncio.get_running_loop().create_future()
        publish = _Publish(batch, appended, now, TIMING.get())
        queue.waiting.append(publish)
        queue.waiting_messages += batch.count
        queue.waiting_bytes += batch.size
        self._queued_bytes += batch.size
        if not queue.flushing or self._may_follow(queue, others=queue.flushing):
            if not queue.flushing:
                queue.answered_at = now
            queue.flushing += 1
            self._tasks.start(self._run(shard_id, queue), name=f"flush shard {shard_id}")
        return appended

    def publish_new(
        self, shard_id: int, batch: EncodedMessages, *, project: str, topic: str
    ) -> asyncio.Future[Stored]:
        """Append messages some of which may be repeats (`batch.identified`), as `publish` does."""
        return cast(asyncio.Future[Stored], self.publish(shard_id, batch, project=project, topic=topic))

    def is_busy(self, shard_id: int) -> bool:
        """Whether publishes to a shard are queued or being stored."""
        return shard_id in self._queues

    def check_capacity(self, shard_id: int) -> None:
        """Raises ResourceExhausted if a publish to the shard would be refused now."""
        queue = self._queues.get(shard_id)
        if self._queued_bytes > MAX_QUEUED_BYTES or (
            queue is not None and _expected_seconds(queue) > MAX_WAIT_SECONDS
        ):
            raise ResourceExhausted(_TOO_MANY)

    async def _run(self, shard_id: int, queue: _ShardQueue) -> None:
        try:
            while queue.waiting and (queue.flushing == 1 or self._may_follow(queue, others=queue.flushing - 1)):
                if not queue.in_flight:
                    queue.slot = slot = self._turns.of(queue.project)
                    if not slot.ask():
                        await self._wait_for_turn(queue, slot)
                queue.in_flight += 1
                try:
                    size = queue.waiting_bytes
                    if size > LARGE_BYTES and not self._loop_turns.begin(queue.project, 2 * size):
                        await self._loop_turns.wait(queue.project, 2 * size)
                    if queue.waiting:  # not yet taken by the other task, or refused
                        await self._flush_next(shard_id, queue)
                finally:
                    queue.in_flight -= 1
                    if not queue.in_flight and queue.slot is not None:
                        queue.slot.end()
        finally:
            queue.flushing -= 1
            if not queue.flushing and not queue.waiting:
                self._queues.pop(shard_id, None)

    async def _wait_for_turn(self, queue: _ShardQueue, slot: Slot) -> None:
        """Wait for a slot, and refuse the queued publishes if that takes too long."""
        stalled = asyncio.get_running_loop().call_later(MAX_WAIT_SECONDS, self._refuse_waiting, queue)
        try:
            await slot.wait()
        finally:
            stalled.cancel()

    async def _flush_next(self, shard_id: int, queue: _ShardQueue) -> None:
        publishes = _take(queue)
        messages = sum([publish.batch.count for publish in publishes])
        queue.flushing_messages += messages
        stalled = asyncio.get_running_loop().call_later(MAX_WAIT_SECONDS, self._refuse_waiting, queue)
        sent = perf_counter() if publishes[0].timing is not None else 0.0
        try:
            await self._flush(shard_id, queue, publishes)
        finally:
            stalled.cancel()
            before, queue.answered_at = queue.answered_at, perf_counter()
            queue.flush_seconds += (queue.answered_at - before - queue.flush_seconds) / 4
            queue.flushing_messages -= messages
            self._let_go(queue, publishes)
            if sent:
                _note_timing(publishes, sent)

    def _may_follow(self, queue: _ShardQueue, *, others: int) -> bool:
        """Whether another flush may be sent while this number of others, 1 or more, is in flight."""
        if others > 1 or queue.waiting_messages < max(MIN_FOLLOWING_MESSAGES, queue.flushing_messages):
            return False  # checked first, because it decides most cases
        if len(self._turns):
            return False  # a slot would never end if one flush followed the other
        return queue.connection is not None and queue.connection.can_be_followed

    def _refuse_waiting(self, queue: _ShardQueue) -> None:
        """Refuse the queued publishes, which were not sent: the flush before them has taken too long."""
        refused, queue.waiting = list(queue.waiting), deque()
        queue.waiting_messages = queue.waiting_bytes = 0
        self._let_go(queue, refused)
        _fail(refused, ResourceExhausted(_TOO_MANY))

    def _let_go(self, queue: _ShardQueue, publishes: list[_Publish]) -> None:
        for publish in publishes:
            size = publish.batch.size
            self._queued_bytes -= size
            if size > LARGE_BYTES:
                self._large.give_back((queue.project,), amount=size)

    async def _flush(self, shard_id: int, queue: _ShardQueue, publishes: list[_Publish]) -> None:
        batches = [publish.batch for publish in publishes]
        try:
            append = partial(self._append, shard_id, queue, batches)
            # Aborted: PostgreSQL undid the flush, and nothing was stored.
            appended = await retrying(partial(with_partitions, self._database, self._clock.now, append), Aborted)
            if appended is None:
                raise NotFound("Topic not found: it was deleted.")
            for publish, answer in zip(publishes, appended, strict=True):
                if not publish.appended.done():
                    publish.appended.set_result(answer)
            self._count(queue.topic, publishes, appended)
            self._wake_ups.published(shard_id)
        except Unavailable as error:
            _fail(publishes, error)
        except BrokerError as error:
            if len(publishes) == 1:
                _fail(publishes, error)
            else:  # a bad message must fail its own request only
                for publish in publishes:
                    await self._flush(shard_id, queue, [publish])
        except asyncio.CancelledError:
            _fail(publishes, Unavailable("The broker stopped while it stored the messages."))
            raise
        except BaseException as fault:  # an unexpected fault, which the API logs and answers with INTERNAL
            _fail(publishes, fault)
            raise

    def _count(self, topic: str, publishes: list[_Publish], appended: Sequence[Appended | Stored]) -> None:
        """Count the publishes of a flush together, which costs little for each."""
        counts, now = self._counters.topic(topic), perf_counter()
        if len(publishes) == 1:
            sizes = publishes[0].batch.sizes
        else:
            sizes = list(chain.from_iterable([publish.batch.sizes for publish in publishes]))
        if stored := [answer for answer in appended if isinstance(answer, Stored)]:
            sizes = list(chain.from_iterable(map(_sizes, publishes, appended)))
            counts[REPEATED_MESSAGES] += sum(answer.repeats for answer in stored)
        counts[PUBLISH_REQUESTS["OK"]] += len(publishes)
        counts[PUBLISHED_MESSAGES] += len(sizes)
        counts[PUBLISHED_BYTES] += MESSAGE_SIZES.observe_all(counts, sizes)
        process = self._counters.process
        SEQUENCING.observe_all(process, [int((now - publish.arrived) * 1e6) for publish in publishes])
        COMMIT_MESSAGES.observe(process, len(sizes))

    async def _append(
        self, shard_id: int, queue: _ShardQueue, batches: list[EncodedMessages]
    ) -> Sequence[Appended | Stored] | None:
        followed = queue.connection
        if followed is not None and not followed.can_be_followed:
            followed = None
        async with self._database.at_any_node(shard_id, followed) as connection:
            queue.connection = connection
            now = whole_milliseconds(self._clock.now())
            try:
                if (append_identified := append_of(batches)) is not None:
                    return await append_identified(connection, shard_id=shard_id, requests=batches, now=now)
                appended = await append_messages(
                    connection, shard_id=shard_id, requests=batches, now=now, heads=self._heads
                )
                if appended is None:
                    return None
                return [appended] if len(batches) == 1 else appended_each(appended, batches)
            finally:
                if connection.users == 1 and queue.connection is connection:
                    queue.connection = None  # it goes back to the pool


def _expected_seconds(queue: _ShardQueue) -> float:
    """The expected time until a publish that is queued now is answered; 0 if nothing is in flight."""
    if not queue.flushing:
        return 0.0
    flushes = 1 + queue.waiting_messages / MAX_FLUSH_MESSAGES + queue.waiting_bytes / MAX_FLUSH_BYTES
    in_flight = perf_counter() - queue.answered_at
    return max(queue.flush_seconds, in_flight) * flushes


def _sizes(publish: _Publish, answer: Appended | Stored) -> Sequence[int]:
    return answer.sizes if isinstance(answer, Stored) else publish.batch.sizes


def _take(queue: _ShardQueue) -> list[_Publish]:
    taken: list[_Publish] = []
    messages = size = 0
    while queue.waiting:
        batch = queue.waiting[0].batch
        messages, size = messages + batch.count, size + batch.size
        if taken and (messages > MAX_FLUSH_MESSAGES or size > MAX_FLUSH_BYTES):
            break
        taken.append(queue.waiting.popleft())
        queue.waiting_messages -= batch.count
        queue.waiting_bytes -= batch.size
    return taken


def _note_timing(publishes: list[_Publish], sent: float) -> None:
    stored = perf_counter()
    for publish in publishes:
        if publish.timing is not None:
            publish.timing.turns += sent - publish.arrived
            publish.timing.database += stored - sent


def _fail(publishes: list[_Publish], error: BaseException) -> None:
    for publish in publishes:
        if not publish.appended.done():
            publish.appended.set_exception(error)
