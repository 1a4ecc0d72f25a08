"""Concurrent acks and deadline changes become one statement each a shard (C7).

Official clients send a deadline change for every response the moment they get it, and acks soon after; both meet
here.  Within one flush an ack wins over any deadline change of the same message, and the last change over those
before it, but for a nack, which is final.

One flush of a project is in flight; what comes of it meanwhile goes with the next.  Flushes of several projects run
side by side, a few at once, and projects take turns by the seconds that their flushes take (fair_turns.py): so one
writes as many in a statement as it has, and waits for nobody else's.

What may wait is bounded: by number, shared by project, and by time, for nobody waits longer than MAX_WAIT_SECONDS
behind a flush.
A refusal is Unavailable: what was asked may be asked again without harm, done or not.
"""

import asyncio
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from operator import itemgetter
from typing import TypeVar

from broker.domain.ack_id import AttemptName
from broker.domain.errors import Aborted, BrokerError, Unavailable
from broker.runtime.ack_batch import Batch, NewDeadline, RefusedAcks, own
from broker.runtime.database_clock import DatabaseClock
from broker.runtime.fair_stock import FairStock
from broker.runtime.fair_turns import FairTurns, Turn
from broker.runtime.jitter import Jitter, retry_jitter
from broker.runtime.retrying import retrying
from broker.runtime.subscription_activity import SubscriptionActivity
from broker.runtime.tasks import Tasks
from broker.runtime.wake_ups import WakeUps
from broker.store.driver.database import Database
from broker.store.driver.hot_connection import HotConnection
from broker.store.log.attempt_ids import AttemptIds
from broker.store.log.delivery_attempts import (
    DeadlineChange,
    MessageNames,
    acknowledge,
    acknowledge_exactly_once,
    acknowledge_in_order,
    modify_ack_deadline,
    modify_ordered_deadline,
)

V = TypeVar("V")

MAX_WAITING_IDS = 1_000_000  # some 100 MB, and a flush of seconds
MAX_WAIT_SECONDS = 5.0  # see publish_coalescer
# Past some thousand rows a larger commit gains nothing, and takes longer than it may.
MAX_STATEMENT_ATTEMPTS = 4_000
LONG_SECONDS = 0.02  # a project whose flushes take so long leaves the last free one to others
_TOO_SLOW = "Acknowledgements take too long to be written; try again."


@dataclass(eq=False, slots=True)
class _Line:
    """What waits of a project, of `taken` ids at most, so for `room` more.

    `began`: when its flush did, or when it began to wait for its turn.
    """

    project: str
    open: Batch | None = None
    taken: int = 0
    room: int = 0
    began: float = 0.0
    stalled: asyncio.TimerHandle | None = None  # when what waits is refused


class AckCoalescer:
    """Writes acks and deadline changes.  A project's open batch is filled by callers and taken by its flush."""

    def __init__(
        self,
        database: Database,
        clock: DatabaseClock,
        attempt_ids: AttemptIds,
        wake_ups: WakeUps,
        tasks: Tasks,
        activity: SubscriptionActivity,
        *,
        flushes_at_once: int,
        jitter: Jitter = retry_jitter,
        settled: Callable[[Iterable[MessageNames]], None] = lambda _: None,
    ) -> None:
        """`flushes_at_once`, each on a connection, 1 or more, beside that of a project which began alone.

        `settled` is told what was acked or nacked, once that is durable.
        """
        self._settled = settled
        self._database = database
        self._clock = clock
        self._attempt_ids = attempt_ids
        self._wake_ups = wake_ups
        self._tasks = tasks
        self._jitter = jitter
        self._activity = activity
        self._turns = FairTurns[_Line](flushes_at_once, long=LONG_SECONDS)
        self._waiting = FairStock(MAX_WAITING_IDS)
        self._stopped = False
        self._lines: dict[str, _Line] = {}  # by project; those that wait, or whose flush is in flight

    async def acknowledge(
        self, acks: Mapping[AttemptName, set[int]], *, project: str, exactly_once: bool = False
    ) -> RefusedAcks:
        """Acknowledge messages; returns once that is durable.  Raises Unavailable, also at once.

        `project` is whose turn it is to be.  Returns those that could not be acked; always none unless
        `exactly_once`.
        """
        batch = self._batch(project, sum(map(len, acks.values())))
        for attempt, ordinals in acks.items():
            batch.acks_like(attempt, exactly_once).setdefault(attempt, set()).update(ordinals)
            # Here rather than in the service: a push that succeeded is an ack as well.
            self._activity.used(attempt.subscription_id)
            if exactly_once:
                batch.exactly_once.add(attempt.subscription_id)
        refused, _ = await asyncio.shield(batch.done)
        return refused.of(acks) if exactly_once else RefusedAcks()

    async def modify_ack_deadline(
        self, messages: Mapping[AttemptName, set[int]], deadline: NewDeadline, *, project: str
    ) -> Mapping[AttemptName, set[int]]:
        """Give messages a new ack deadline; returns once that is durable.  Raises Unavailable.

        `project` as for `acknowledge`.  Returns those that were stale, and so have not changed.
        """
        batch = self._batch(project, sum(map(len, messages.values())))
        for attempt, ordinals in messages.items():
            batch.change(attempt, ordinals, deadline)
        _, stale = await asyncio.shield(batch.done)
        return own(messages, stale)

    # --- turns ---------------------------------------------------------------------------------------------------

    def _batch(self, project: str, size: int) -> Batch:
        """The one that waits, for so many ids more."""
        loop = asyncio.get_running_loop()
        line = self._lines.get(project)
        if line is not None and loop.time() - line.began > MAX_WAIT_SECONDS:
            raise Unavailable(_TOO_SLOW)
        more = 0
        if line is None or size > line.room:
            more = max(size, MAX_WAITING_IDS // 1_000)  # also for others to come: asking for each costs too much
            over = self._waiting.take((project,), amount=more)
            if over is not None:
                whose = f"of {over.path[-1]} " if over.path else ""
                raise Unavailable(f"Too many acknowledgements {whose}wait to be written; try again.")
        if line is None:
            line = self._lines[project] = _Line(project)
            self._queue(line)
        if line.open is None:
            line.open = Batch(loop.create_future())
        line.taken += more
        line.room += more - size
        return line.open

    def _queue(self, line: _Line) -> None:
        """For a turn, which who is alone does not need; who has waited for too long gets none."""
        loop = asyncio.get_running_loop()
        line.began = loop.time()
        if len(self._lines) == 1 and not self._stopped:
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
        try:
            batch = self._take(line)
            if batch is not None:
                line.began = began
                line.stalled = loop.call_later(MAX_WAIT_SECONDS, self._refuse_waiting, line)
                await self._flush(batch)
        except asyncio.CancelledError:
            self._stopped = True
            raise
        finally:
            if turn is not None:
                self._turns.end(turn, loop.time() - began)
            if line.stalled is not None:
                line.stalled.cancel()
            if line.open is None:
                del self._lines[line.project]
                self._begin_turns()
            else:
                self._queue(line)

    def _take(self, line: _Line) -> Batch | None:
        """What waits; None: it was refused."""
        if line.stalled is not None:
            line.stalled.cancel()
        batch, line.open = line.open, None
        self._waiting.give_back((line.project,), amount=line.taken)
        line.taken = line.room = 0
        return batch

    def _refuse_waiting(self, line: _Line) -> None:
        """The flush before them has taken too long, or others' have."""
        batch = self._take(line)
        if batch is not None:
            batch.fail(Unavailable(_TOO_SLOW))

    async def _flush(self, batch: Batch) -> None:
        try:
            stale = await retrying(lambda: self._write(batch), Aborted, Unavailable)  # may be repeated without harm
        except BrokerError as error:
            batch.fail(error)
        except asyncio.CancelledError:
            batch.fail(Unavailable("The broker stopped."))
            raise
        except BaseException as fault:  # nobody foresaw it: the callers' door logs it and answers INTERNAL
            batch.fail(fault)
            raise
        else:
            refused, _ = stale
            self._settled(batch.settled(refused.out_of_order))
            batch.done.set_result(stale)

    async def _write(self, batch: Batch) -> tuple[RefusedAcks, MessageNames]:
        await self._write_acks(batch.acks)
        stale = await self._write_exactly_once_acks(batch.exactly_once_acks)
        refused = await self._write_acks_in_order(batch.acks_in_order, batch.exactly_once)
        refused = RefusedAcks({**refused.stale, **stale}, refused.out_of_order)
        return refused, await self._write_deadlines(batch)

    async def _write_acks(self, acks: MessageNames) -> None:
        for shard_id, part in _by_shard(acks.items()):
            shard_acks = dict(part)
            async with self._database.hot() as connection:
                missing = await acknowledge(connection, shard_id=shard_id, acks=shard_acks)
                if missing:  # gone, or moved to another part of the attempt while we waited: try once more
                    await acknowledge(connection, shard_id=shard_id, acks=missing)

    async def _write_exactly_once_acks(self, acks: MessageNames) -> MessageNames:
        stale: MessageNames = {}
        for shard_id, part in _by_shard(acks.items()):
            shard_acks = dict(part)
            now = self._clock.now()
            async with self._database.hot() as connection:
                missing = await acknowledge_exactly_once(connection, shard_id=shard_id, acks=shard_acks, now=now)
                if missing:
                    stale |= await acknowledge_exactly_once(connection, shard_id=shard_id, acks=missing, now=now)
        return stale

    async def _write_acks_in_order(self, acks: MessageNames, exactly_once: Container[int]) -> RefusedAcks:
        stale: MessageNames = {}
        out_of_order: MessageNames = {}
        for shard_id, part in _by_shard(acks.items()):
            shard_acks = dict(part)
            now = self._clock.now()
            async with self._database.hot() as connection:
                write = partial(
                    acknowledge_in_order, connection, shard_id=shard_id, exactly_once=exactly_once, now=now
                )
                tries = [await write(acks=shard_acks)]
                missing = {a: of_it for a, of_it in tries[0].stale.items() if a.subscription_id in exactly_once}
                if missing:  # gone, or acked before and put aside by a claim while we waited: try once more
                    tries.append(await write(acks=missing))
            stale |= tries[-1].stale
            for acked in tries:
                for attempt, ordinals in acked.out_of_order.items():
                    out_of_order.setdefault(attempt, set()).update(ordinals)
                for subscription_id in acked.due:
                    self._wake_ups.redeliverable(subscription_id)
        return RefusedAcks(stale, out_of_order)

    async def _write_deadlines(self, batch: Batch) -> MessageNames:
        not_acked = {
            attempt: {
                ordinal: deadline for ordinal, deadline in deadlines.items() if not batch.is_acked(attempt, ordinal)
            }
            for attempt, deadlines in batch.deadlines.items()
        }
        stale: MessageNames = {}
        for wave in _waves(not_acked):
            for shard_id, changes in _by_shard(wave):
                for attempt, ordinals in (await self._write_wave(shard_id, changes)).items():
                    stale.setdefault(attempt, set()).update(ordinals)
        for subscription_id in {attempt.subscription_id for attempt in batch.deadlines}:
            self._wake_ups.redeliverable(subscription_id)
        return stale

    async def _write_wave(
        self, shard_id: int, wave: Sequence[tuple[AttemptName, tuple[NewDeadline, set[int]]]]
    ) -> MessageNames:
        now = self._clock.now()
        changes = [
            DeadlineChange(
                attempt,
                frozenset(ordinals),
                now + timedelta(seconds=deadline.seconds),
                status=deadline.status,
                retry_policy=deadline.retry_policy,
                exactly_once=deadline.exactly_once,
                failure=deadline.failure,
            )
            for attempt, (deadline, ordinals) in wave
        ]
        async with self._database.hot() as connection:
            missing = await self._modify(connection, shard_id, changes)
            again = [
                replace(change, ordinals=rest)
                for change in changes
                if (rest := change.ordinals & missing.get(change.attempt, set()))
            ]
            return await self._modify(connection, shard_id, again) if again else {}

    async def _modify(
        self, connection: HotConnection, shard_id: int, changes: list[DeadlineChange]
    ) -> MessageNames:
        now = self._clock.now()
        jitter = self._jitter()
        plain = [change for change in changes if not change.attempt.ordered]
        in_order = [change for change in changes if change.attempt.ordered]
        missing: MessageNames = {}
        if plain:
            parts = self._attempt_ids.take_parts(len(plain), now=now)
            missing |= await modify_ack_deadline(
                connection, shard_id=shard_id, changes=plain, new_parts=list(parts), jitter=jitter, now=now
            )
        if in_order:
            missing |= await modify_ordered_deadline(
                connection, shard_id=shard_id, changes=in_order, jitter=jitter, now=now
            )
        return missing


def _by_shard(attempts: Iterable[tuple[AttemptName, V]]) -> Iterator[tuple[int, Sequence[tuple[AttemptName, V]]]]:
    """What belongs to each shard, in parts that one statement may have."""
    shards: dict[int, list[tuple[AttemptName, V]]] = {}
    for attempt, value in attempts:
        shards.setdefault(attempt.shard_id, []).append((attempt, value))
    for shard_id, of_shard in sorted(shards.items(), key=itemgetter(0)):
        for start in range(0, len(of_shard), MAX_STATEMENT_ATTEMPTS):
            yield shard_id, of_shard[start : start + MAX_STATEMENT_ATTEMPTS]


def _waves(
    deadlines: Mapping[AttemptName, Mapping[int, NewDeadline]],
) -> list[list[tuple[AttemptName, tuple[NewDeadline, set[int]]]]]:
    """What may go together: of an attempt that holds a key one change, for it may take back what another names."""
    waves: list[list[tuple[AttemptName, tuple[NewDeadline, set[int]]]]] = []
    for attempt, ordinals in deadlines.items():
        groups: dict[NewDeadline, set[int]] = {}
        for ordinal, deadline in ordinals.items():
            groups.setdefault(deadline, set()).add(ordinal)
        for number, group in enumerate(groups.items()):
            wave = number if attempt.ordered else 0
            if wave == len(waves):
                waves.append([])
            waves[wave].append((attempt, group))
    return waves
