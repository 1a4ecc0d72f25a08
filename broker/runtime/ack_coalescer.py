"""Concurrent acks and deadline changes become one statement each a shard (C7).

Official clients send a deadline change for every response the moment they get it, and acks soon after; both meet
here.  Within one flush an ack wins over any deadline change of the same message, and the last change over those
before it, but for a nack, which is final.

A flush is of one project and shard.  One of them is in flight; what comes of it meanwhile goes with the next, so it
writes as many in a statement as it has.  Those of other projects and shards run beside it, a few at once.  Projects
take turns by the seconds that their flushes take (fair_turns.py), shards of one in the order in which they ask: one
that had to wait for a lock would else not be written again until all others have taken as long.

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
from broker.runtime.fair_turns import FairTurns, Turn
from broker.runtime.retrying import retrying
from broker.runtime.subscription_activity import SubscriptionActivity
from broker.runtime.turn_counts import TurnCounts
from broker.store.log.delivery_attempts import MessageNames

MAX_WAITING_IDS = 1_000_000  # some 100 MB, and a flush of seconds
MAX_WAIT_SECONDS = 5.0  # see publish_coalescer
MOST_CHARGED_SECONDS = 0.02  # for a flush
_TOO_SLOW = "Acknowledgements take too long to be written; try again."


@dataclass(eq=False, slots=True)
class _Line:
    """What waits of a project in a shard: so many `ids`.

    `began`: when its flush did, or when it began to wait for its turn.
    """

    project: str
    shard_id: int
    open: Batch | None = None
    ids: int = 0
    began: float = 0.0
    stalled: asyncio.TimerHandle | None = None  # when what waits is refused


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
        """`flushes_at_once`, each on a connection, 1 or more, beside one that began alone.

        `acked` is told what was acked, `settled` what was acked or nacked, once that is durable.
        """
        self._turn_counts = TurnCounts(core.counters, "ack")
        self._company = core.company
        self._acked = acked
        self._settled = settled
        self._writer = writer
        self._tasks = core.tasks
        self._activity = activity
        # That a flush waits for a lock shows too late: no project that has one ever takes the last, however short.
        self._turns = FairTurns[_Line](flushes_at_once, long=0.0, most=MOST_CHARGED_SECONDS, company=self._company)
        self._waiting = _WaitingIds(MAX_WAITING_IDS)
        self._stopped = False
        # Those that wait, or whose flush is in flight, by project and shard.
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
            line = self._lines[project, shard_id] = _Line(project, shard_id)
            self._queue(line)
        if line.open is None:
            line.open = Batch(asyncio.get_running_loop().create_future())
        line.ids += size
        return line.open

    def _queue(self, line: _Line) -> None:
        """For a turn, which who is alone does not need; who has waited for too long gets none."""
        loop = asyncio.get_running_loop()
        line.began = loop.time()
        if len(self._lines) == 1 and not self._stopped:
            self._company.had_turn(line.project)
            self._tasks.start(self._run(line, None), name="flush acks")
            return
        line.stalled = loop.call_later(MAX_WAIT_SECONDS, self._refuse_waiting, line)
        self._turns.ask((line.project,), line)
        self._begin_turns()

    def _begin_turns(self) -> None:
        while not self._stopped and (turn := self._turns.begin()) is not None:
            self._tasks.start(self._run(turn.item, turn), name="flush acks")

    async def _run(self, line: _Line, turn: Turn[_Line] | None) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        waited = began - line.began
        try:
            batch = self._take(line)
            if batch is not None:
                line.began = began
                line.stalled = loop.call_later(MAX_WAIT_SECONDS, self._refuse_waiting, line)
                await self._flush(line.shard_id, batch)
        except asyncio.CancelledError:
            self._stopped = True
            raise
        finally:
            held = loop.time() - began
            self._turn_counts.ended(line.project, waited=waited, held=held)
            if turn is not None:
                self._turns.end(turn, held)
            if line.stalled is not None:
                line.stalled.cancel()
            if line.open is None:
                del self._lines[line.project, line.shard_id]
                self._begin_turns()
            else:
                self._queue(line)

    def _take(self, line: _Line) -> Batch | None:
        """What waits; None: it was refused."""
        if line.stalled is not None:
            line.stalled.cancel()
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

    async def _flush(self, shard_id: int, batch: Batch) -> None:
        try:
            answer = await retrying(lambda: self._writer.write(shard_id, batch), Aborted, Unavailable)
        except BrokerError as error:
            batch.fail(error)
        except asyncio.CancelledError:
            batch.fail(Unavailable("The broker stopped."))
            raise
        except BaseException as fault:  # nobody foresaw it: the callers' door logs it and answers INTERNAL
            batch.fail(fault)
            raise
        else:
            refused, _ = answer
            self._acked(batch.acked(refused.out_of_order))
            self._settled(chain(batch.acked(refused.out_of_order), batch.nacked()))
            batch.done.set_result(answer)


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
