"""Concurrent acks and deadline changes become one statement each a shard (C7).

Official clients send a deadline change for every response the moment they get it, and acks soon after; both meet
here.  Within one flush an ack wins over any deadline change of the same message, and the last change over those
before it, but for a nack, which is final.

A flush is of one project and shard.  One of them is in flight; what comes of it meanwhile goes with the next, so it
writes as many in a statement as it has.  Those of other projects and shards run beside it, a few at once.  Projects
take turns by the seconds that their flushes take (turns.py), shards of one in the order in which they ask: one that
had to wait for a lock would else not be written again until all others have taken as long.

What may wait is bounded: by number, shared by project, and by time, for nobody waits longer than MAX_WAIT_SECONDS
behind a flush.
A refusal is Unavailable: what was asked may be asked again without harm, done or not.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

from broker.domain.ack_id import AttemptName
from broker.domain.errors import Aborted, BrokerError, Unavailable
from broker.domain.fair_stock import FairStock
from broker.domain.journal import UNKNOWN, Told
from broker.runtime.ack_batch import Batch, NewDeadline, RefusedAcks, own
from broker.runtime.ack_writer import AckWriter
from broker.runtime.core import Core
from broker.runtime.retrying import retrying
from broker.runtime.subscription_activity import SubscriptionActivity
from broker.runtime.turn_counts import TurnCounts
from broker.runtime.turns import Slot, Turns
from broker.store.log.delivery_attempts import MessageNames

MAX_WAITING_IDS = 1_000_000  # some 100 MB, and a flush of seconds
MAX_WAIT_SECONDS = 5.0  # see publish_coalescer
MOST_CHARGED_SECONDS = 0.02  # for a flush
CONTENDED_FLUSHES = 2  # of a project beside others: one that waits for a lock does not stop its other shards
_STOPPED = "The broker stopped."
_TOO_SLOW = "Acknowledgements take too long to be written; try again."


@dataclass(eq=False, slots=True)
class _Line:
    """The acks of a project in a shard that wait: so many `ids`.

    `began`: when its flush did, or when it began to wait for its turn.
    """

    project: str
    shard_id: int
    began: float
    open: Batch | None = None
    ids: int = 0


class AckCoalescer:
    """Writes acks and deadline changes.  A line's open batch is filled by callers and taken by its flush."""

    def __init__(
        self,
        core: Core,
        writer: AckWriter,
        activity: SubscriptionActivity,
        *,
        flushes_at_once: int,
        acked: Callable[[Iterable[MessageNames]], None] = lambda _: None,
        settled: Callable[[Iterable[MessageNames]], None] = lambda _: None,
    ) -> None:
        """`flushes_at_once`, each on a connection, 1 or more.

        `acked` is told what was acked, `settled` what was acked or nacked, once that is durable.
        """
        self._acked = acked
        self._settled = settled
        self._writer = writer
        self._tasks = core.tasks
        self._activity = activity
        # That a flush waits for a lock shows too late: no project that has one ever takes the last, however short.
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
        # By project and shard: those that wait, or whose flush is in flight.  Each has a task.
        self._lines: dict[tuple[str, int], _Line] = {}

    async def acknowledge(
        self,
        acks: Mapping[AttemptName, set[int]],
        *,
        project: str,
        exactly_once: bool = False,
        told: Told = UNKNOWN,
    ) -> RefusedAcks:
        """Acknowledge messages; returns once that is durable.  Raises Unavailable, also at once.

        `project` is whose turn it is to be.  `told`: by whom, for the record of deliveries and the journal.
        Returns those that could not be acked; always none unless `exactly_once`.
        """
        batches = self._batches(project, acks)
        for attempt, ordinals in acks.items():
            batch = batches[attempt.shard_id]
            batch.ack(attempt, ordinals, exactly_once=exactly_once)
            # Here rather than in the service: a push that succeeded is an ack as well.
            self._activity.used(attempt.subscription_id)
            batch.told.setdefault(attempt, []).append((ordinals, told))
            if told.journal is not None:
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
        """Give messages a new ack deadline; returns once that is durable.  Raises Unavailable.

        `project` as for `acknowledge`.  Returns those that were stale, and so have not changed.
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
        """Those that wait, by shard, for these ids more; all of them, or none."""
        sizes: dict[int, int] = {}
        for attempt, ordinals in messages.items():
            sizes[attempt.shard_id] = sizes.get(attempt.shard_id, 0) + len(ordinals)
        if not sizes:
            return {}
        if self._stopped:
            raise Unavailable(_STOPPED)
        now = asyncio.get_running_loop().time()
        for shard_id in sizes:
            line = self._lines.get((project, shard_id))
            if line is not None and now - line.began > MAX_WAIT_SECONDS:
                raise Unavailable(_TOO_SLOW)
        self._waiting.take(project, sum(sizes.values()))
        return {shard_id: self._batch(project, shard_id, size) for shard_id, size in sizes.items()}

    def _batch(self, project: str, shard_id: int, size: int) -> Batch:
        line = self._lines.get((project, shard_id))
        if line is None:
            line = self._lines[project, shard_id] = _Line(project, shard_id, asyncio.get_running_loop().time())
            self._start(line)
        if line.open is None:
            line.open = Batch(asyncio.get_running_loop().create_future())
        line.ids += size
        return line.open

    def _start(self, line: _Line) -> None:
        self._tasks.start(self._run(line), name="flush acks")

    async def _run(self, line: _Line) -> None:
        """Flush what waits in the line, a turn for each flush, until nothing is left."""
        try:
            while line.open is not None:
                slot = self._turns.of(line.project)
                if not slot.ask():
                    await self._wait_for_turn(line, slot)
                try:
                    if (batch := self._take(line)) is not None:
                        await self._flush(line, batch)
                finally:
                    slot.end()
        except asyncio.CancelledError:
            self._stopped = True
            if (batch := self._take(line)) is not None:
                batch.fail(Unavailable(_STOPPED))
            raise
        finally:
            if line.open is None:
                del self._lines[line.project, line.shard_id]
            else:  # the flush before failed in a way that nobody foresaw
                self._start(line)

    async def _wait_for_turn(self, line: _Line, slot: Slot) -> None:
        stalled = self._refuse_later(line)
        try:
            await slot.wait()
        finally:
            stalled.cancel()

    def _refuse_later(self, line: _Line) -> asyncio.TimerHandle:
        """Refuse what waits in the line once the turn or the flush that begins now has taken too long."""
        loop = asyncio.get_running_loop()
        line.began = loop.time()
        return loop.call_later(MAX_WAIT_SECONDS, self._refuse_waiting, line)

    def _take(self, line: _Line) -> Batch | None:
        """The acks that wait; None: they were refused."""
        batch, line.open = line.open, None
        if batch is not None:
            self._waiting.give_back(line.project, line.ids)
            line.ids = 0
        return batch

    def _refuse_waiting(self, line: _Line) -> None:
        """The flush before them has taken too long, or others' have."""
        batch = self._take(line)
        if batch is not None:
            batch.fail(Unavailable(_TOO_SLOW))

    async def _flush(self, line: _Line, batch: Batch) -> None:
        stalled = self._refuse_later(line)
        try:
            answer = await retrying(lambda: self._writer.write(line.shard_id, batch), Aborted, Unavailable)
        except BrokerError as error:
            batch.fail(error)
        except asyncio.CancelledError:
            batch.fail(Unavailable(_STOPPED))
            raise
        except BaseException as fault:  # nobody foresaw it: the callers' door logs it and answers INTERNAL
            batch.fail(fault)
            raise
        else:
            refused, _ = answer
            self._acked(batch.acked(refused.out_of_order))
            self._settled(chain(batch.acked(refused.out_of_order), batch.nacked()))
            batch.done.set_result(answer)
        finally:
            stalled.cancel()


class _WaitingIds:
    """Room for ids that wait, shared by project.  Taken by the thousand: for each call it would cost too much."""

    def __init__(self, capacity: int) -> None:
        self._stock = FairStock(capacity)
        self._step = max(capacity // 1_000, 1)
        self._ids: dict[str, int] = {}  # by project
        self._taken: dict[str, int] = {}

    def take(self, project: str, ids: int) -> None:
        """Raises Unavailable."""
        waiting = self._ids.get(project, 0) + ids
        taken = self._taken.get(project, 0)
        if waiting > taken:
            more = max(waiting - taken, self._step)
            over = self._stock.take((project,), amount=more)
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
            self._stock.give_back((project,), amount=self._taken.pop(project))
        elif surplus > 2 * self._step:
            self._taken[project] = left + self._step
            self._stock.give_back((project,), amount=surplus - self._step)
