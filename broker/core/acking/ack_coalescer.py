"""Writes concurrent acks and deadline changes of a shard with one statement each (C7).

Official clients change the deadline of every response as soon as they receive it, and ack soon after; both are
collected here.  Within one flush an ack overrides any deadline change of the same message, and the last change
overrides earlier ones, except a nack, which is final.

A flush writes the acks of one project and shard.  One such flush is in flight at a time; acks that arrive
meanwhile go with the next.  Flushes of other projects and shards run at the same time, a few at once.  Projects
take turns by the seconds that their flushes take (fairness/turns.py), and the shards of a project by the order in
which they ask: otherwise a shard that had to wait for a lock would not be written again until all others had used
as much time.

The queued acks are bounded by number, which projects share, and by time: no ack waits longer than MAX_WAIT_SECONDS
for a flush.  A refusal is Unavailable: acks and deadline changes may be repeated, whether they were written or
not.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

from broker.core.acking.ack_batch import Batch, NewDeadline, RefusedAcks, own
from broker.core.acking.ack_writer import AckWriter
from broker.core.context.core import Core
from broker.core.expiration.subscription_activity import SubscriptionActivity
from broker.core.process.retrying import retrying
from broker.fairness.shared_capacity import SharedCapacity
from broker.fairness.turn_counts import TurnCounts
from broker.fairness.turns import Slot, Turns
from broker.model.ack_id import AttemptName, MessageNames
from broker.model.errors import Aborted, BrokerError, Unavailable
from broker.model.journal import UNKNOWN, Attribution

MAX_WAITING_IDS = 1_000_000  # about 100 MB, and some seconds to write
MAX_WAIT_SECONDS = 5.0  # see publish_coalescer
MOST_CHARGED_SECONDS = 0.02  # for a flush
CONTENDED_FLUSHES = 2  # of a project among others, so that a flush that waits for a lock blocks no other shard
_STOPPED = "The broker stopped."
_TOO_SLOW = "Acknowledgements take too long to be written; try again."


@dataclass(eq=False, slots=True)
class _Queue:
    """The acks of a project in a shard that wait for a flush, with their number of `ids`.

    `began`: when its flush began, or when it began to wait for a slot.
    """

    project: str
    shard_id: int
    began: float
    open: Batch | None = None
    ids: int = 0


class AckCoalescer:
    """Writes acks and deadline changes.  Callers fill the open batch of a queue, and its flush takes the batch."""

    def __init__(
        self,
        core: Core,
        writer: AckWriter,
        activity: SubscriptionActivity,
        *,
        flushes_at_once: int,
        acked: Callable[[Iterable[MessageNames]], None] = lambda _: None,
        nacked: Callable[[Iterable[MessageNames]], None] = lambda _: None,
        settled: Callable[[Iterable[MessageNames]], None] = lambda _: None,
    ) -> None:
        """`flushes_at_once`: the number of flushes that run at the same time, each on a connection; 1 or more.

        `acked` and `nacked` are called with the messages that were acked and nacked, and `settled` with both, once
        that is durable.
        """
        self._acked = acked
        self._nacked = nacked
        self._settled = settled
        self._writer = writer
        self._tasks = core.tasks
        self._activity = activity
        # A flush may yet have to wait for a lock, so a project that has a slot never takes the last free one.
        self._turns = Turns(
            flushes_at_once,
            long_seconds=0.0,
            max_charged_seconds=MOST_CHARGED_SECONDS,
            tenants=core.tenants,
            contended_slots=CONTENDED_FLUSHES,
            counts=TurnCounts(core.counters, "ack"),
        )
        self._waiting = _WaitingIds(MAX_WAITING_IDS)
        self._stopped = False
        # By project and shard: queues with waiting acks, or with a flush in flight.  Each has a task.
        self._queues: dict[tuple[str, int], _Queue] = {}

    async def acknowledge(
        self,
        acks: Mapping[AttemptName, set[int]],
        *,
        project: str,
        exactly_once: bool = False,
        attribution: Attribution = UNKNOWN,
    ) -> RefusedAcks:
        """Acknowledge messages durably, in a turn of the `project`.  Raises Unavailable.

        `attribution`: who acknowledges, for the record of deliveries and the journal.  Returns the messages that
        could not be acked, which are none unless `exactly_once`.
        """
        batches = self._batches(project, acks)
        for attempt, ordinals in acks.items():
            batch = batches[attempt.shard_id]
            batch.ack(attempt, ordinals, exactly_once=exactly_once)
            # Here rather than in the service, because a successful push is an ack as well.
            self._activity.used(attempt.subscription_id)
            batch.attribution.setdefault(attempt, []).append((ordinals, attribution))
            if attribution.journal is not None:
                batch.journaled = True
            if exactly_once:
                batch.exactly_once.add(attempt.subscription_id)
        refused = [(await asyncio.shield(batch.done))[0] for batch in batches.values()]
        if not exactly_once:
            return RefusedAcks()
        return RefusedAcks.joined(each.of(acks) for each in refused if each)

    async def modify_ack_deadline(
        self, messages: Mapping[AttemptName, set[int]], deadline: NewDeadline, *, project: str
    ) -> Mapping[AttemptName, set[int]]:
        """Change the ack deadline of messages durably, in a turn of the `project`.  Raises Unavailable.

        Returns the messages whose ack ids were stale, which have not changed.
        """
        batches = self._batches(project, messages)
        for attempt, ordinals in messages.items():
            batches[attempt.shard_id].change(attempt, ordinals, deadline)
        stale: dict[AttemptName, set[int]] = {}
        for batch in batches.values():
            stale |= own(messages, (await asyncio.shield(batch.done))[1])
        return stale

    # --- turns ---------------------------------------------------------------------------------------------------

    def _batches(self, project: str, messages: Mapping[AttemptName, set[int]]) -> dict[int, Batch]:
        """Make room for these ids, all of them or none.  Returns the open batches by shard."""
        sizes: dict[int, int] = {}
        for attempt, ordinals in messages.items():
            sizes[attempt.shard_id] = sizes.get(attempt.shard_id, 0) + len(ordinals)
        if not sizes:
            return {}
        if self._stopped:
            raise Unavailable(_STOPPED)
        now = asyncio.get_running_loop().time()
        for shard_id in sizes:
            queue = self._queues.get((project, shard_id))
            if queue is not None and now - queue.began > MAX_WAIT_SECONDS:
                raise Unavailable(_TOO_SLOW)
        self._waiting.take(project, sum(sizes.values()))
        return {shard_id: self._batch(project, shard_id, size) for shard_id, size in sizes.items()}

    def _batch(self, project: str, shard_id: int, size: int) -> Batch:
        queue = self._queues.get((project, shard_id))
        if queue is None:
            queue = self._queues[project, shard_id] = _Queue(project, shard_id, asyncio.get_running_loop().time())
            self._start(queue)
        if queue.open is None:
            queue.open = Batch(asyncio.get_running_loop().create_future())
        queue.ids += size
        return queue.open

    def _start(self, queue: _Queue) -> None:
        self._tasks.start(self._run(queue), name="flush acks")

    async def _run(self, queue: _Queue) -> None:
        """Flush the queue until it is empty, with a slot for each flush."""
        try:
            while queue.open is not None:
                slot = self._turns.of(queue.project)
                if not slot.ask():
                    await self._wait_for_turn(queue, slot)
                try:
                    if (batch := self._take(queue)) is not None:
                        await self._flush(queue, batch)
                finally:
                    slot.end()
        except asyncio.CancelledError:
            self._stopped = True
            if (batch := self._take(queue)) is not None:
                batch.fail(Unavailable(_STOPPED))
            raise
        finally:
            if queue.open is None:
                del self._queues[queue.project, queue.shard_id]
            else:  # the last flush failed unexpectedly
                self._start(queue)

    async def _wait_for_turn(self, queue: _Queue, slot: Slot) -> None:
        stalled = self._refuse_later(queue)
        try:
            await slot.wait()
        finally:
            stalled.cancel()

    def _refuse_later(self, queue: _Queue) -> asyncio.TimerHandle:
        """Refuse the queued acks if the slot or the flush that begins now takes too long."""
        loop = asyncio.get_running_loop()
        queue.began = loop.time()
        return loop.call_later(MAX_WAIT_SECONDS, self._refuse_waiting, queue)

    def _take(self, queue: _Queue) -> Batch | None:
        """Take the open batch; None: it was refused."""
        batch, queue.open = queue.open, None
        if batch is not None:
            self._waiting.give_back(queue.project, queue.ids)
            queue.ids = 0
        return batch

    def _refuse_waiting(self, queue: _Queue) -> None:
        """Refuse the queued acks: the flush before them, or those of others, have taken too long."""
        batch = self._take(queue)
        if batch is not None:
            batch.fail(Unavailable(_TOO_SLOW))

    async def _flush(self, queue: _Queue, batch: Batch) -> None:
        stalled = self._refuse_later(queue)
        try:
            answer = await retrying(lambda: self._writer.write(queue.shard_id, batch), Aborted, Unavailable)
        except BrokerError as error:
            batch.fail(error)
        except asyncio.CancelledError:
            batch.fail(Unavailable(_STOPPED))
            raise
        except BaseException as fault:  # an unexpected fault, which the API logs and answers with INTERNAL
            batch.fail(fault)
            raise
        else:
            refused, _ = answer
            self._acked(batch.acked(refused.out_of_order))
            if batch.deadlines:
                self._nacked(batch.nacked())
            self._settled(chain(batch.acked(refused.out_of_order), batch.nacked()))
            batch.done.set_result(answer)
        finally:
            stalled.cancel()


class _WaitingIds:
    """Room for waiting ids, which projects share.  It is taken by the thousand, as each take has its cost."""

    def __init__(self, capacity: int) -> None:
        self._shared_capacity = SharedCapacity(capacity)
        self._step = max(capacity // 1_000, 1)
        self._ids: dict[str, int] = {}  # by project
        self._taken: dict[str, int] = {}

    def take(self, project: str, ids: int) -> None:
        """Raises Unavailable."""
        waiting = self._ids.get(project, 0) + ids
        taken = self._taken.get(project, 0)
        if waiting > taken:
            more = max(waiting - taken, self._step)
            over = self._shared_capacity.take((project,), amount=more)
            if over is not None:
                whose = f"of {over.path[-1]} " if over.path else ""
                raise Unavailable(f"Too many acknowledgements {whose}wait to be written; try again.")
            taken += more
        self._ids[project], self._taken[project] = waiting, taken

    def give_back(self, project: str, ids: int) -> None:
        left = self._ids[project] = self._ids[project] - ids
        surplus = self._taken[project] - left
        if not left:
            del self._ids[project]
            self._shared_capacity.give_back((project,), amount=self._taken.pop(project))
        elif surplus > 2 * self._step:
            self._taken[project] = left + self._step
            self._shared_capacity.give_back((project,), amount=surplus - self._step)
