"""Concurrent acks and deadline changes become one statement each a shard (C7).

Official clients send a deadline change for every response the moment they get it, and acks soon after; both meet
here.  Within one flush an ack wins over any deadline change of the same message, and the last change over those
before it, but for a nack, which is final.  One flush is in flight; what comes meanwhile goes with the next.

What may wait is bounded: by number, and by time, for nobody waits longer than MAX_WAIT_SECONDS behind a flush.
A refusal is Unavailable: what was asked may be asked again without harm, done or not.
"""

import asyncio
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from operator import itemgetter
from typing import TypeVar

from broker.domain.ack_id import AttemptName
from broker.domain.errors import Aborted, BrokerError, Unavailable
from broker.domain.retry_policy import RetryPolicy
from broker.runtime.database_clock import DatabaseClock
from broker.runtime.jitter import Jitter, retry_jitter
from broker.runtime.retrying import retrying
from broker.runtime.subscription_activity import SubscriptionActivity
from broker.runtime.tasks import Tasks
from broker.runtime.wake_ups import WakeUps
from broker.store.driver.database import Database
from broker.store.driver.hot_connection import HotConnection
from broker.store.log.attempt_ids import AttemptIds
from broker.store.log.delivery_attempts import (
    AttemptStatus,
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
_TOO_MANY = "Too many acknowledgements wait to be written; try again."


@dataclass(frozen=True, slots=True)
class NewDeadline:
    """Seconds from now, and what becomes of the messages till then (see DeadlineChange)."""

    seconds: float
    status: AttemptStatus = "delivering"
    retry_policy: RetryPolicy | None = None
    exactly_once: bool = False
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class RefusedAcks:
    """Acks that changed nothing: stale ones, and those that came before their turn in an ordering key."""

    stale: Mapping[AttemptName, set[int]] = field(default_factory=dict)
    out_of_order: Mapping[AttemptName, set[int]] = field(default_factory=dict)

    def of(self, acks: Mapping[AttemptName, set[int]]) -> "RefusedAcks":
        """Those among `acks`."""
        return RefusedAcks(_own(acks, self.stale), _own(acks, self.out_of_order))

    def __bool__(self) -> bool:
        return bool(self.stale or self.out_of_order)


@dataclass(slots=True)
class _Batch:
    """`done` gives the acks that were refused, and the messages whose deadline change was stale."""

    done: asyncio.Future[tuple[RefusedAcks, MessageNames]]
    acks: MessageNames = field(default_factory=dict)
    exactly_once_acks: MessageNames = field(default_factory=dict)
    acks_in_order: MessageNames = field(default_factory=dict)
    exactly_once: set[int] = field(default_factory=set)  # subscriptions
    deadlines: dict[AttemptName, dict[int, NewDeadline]] = field(default_factory=dict)
    size: int = 0  # ids, as often as they came

    def fail(self, error: BaseException) -> None:
        self.done.set_exception(error)
        self.done.exception()  # every caller may be gone

    def change(self, attempt: AttemptName, ordinals: Iterable[int], deadline: NewDeadline) -> None:
        """The last change counts, but a message that was given up is not held on to."""
        known = self.deadlines.setdefault(attempt, {})
        if known and deadline.status == "delivering":
            given_up = [each for each in ordinals if each in known and known[each].status != "delivering"]
            ordinals = set(ordinals).difference(given_up)
        known.update(dict.fromkeys(ordinals, deadline))

    def acks_like(self, attempt: AttemptName, exactly_once: bool) -> MessageNames:
        """Where acks of this kind are collected."""
        if attempt.ordered:
            return self.acks_in_order
        return self.exactly_once_acks if exactly_once else self.acks

    def settled(self, out_of_order: Mapping[AttemptName, set[int]]) -> Iterator[MessageNames]:
        """What is out no more once the batch is written."""
        yield self.acks
        yield self.exactly_once_acks
        yield {a: ordinals - out_of_order.get(a, set()) for a, ordinals in self.acks_in_order.items()}
        yield {
            attempt: nacked
            for attempt, deadlines in self.deadlines.items()
            if (nacked := {ordinal for ordinal, new in deadlines.items() if new.status != "delivering"})
        }

    def is_acked(self, attempt: AttemptName, ordinal: int) -> bool:
        kinds = (self.acks, self.exactly_once_acks, self.acks_in_order)
        return any(ordinal in acks.get(attempt, ()) for acks in kinds)


class AckCoalescer:
    """Writes acks and deadline changes.  The open batch is filled by callers and taken by the one flush task."""

    def __init__(
        self,
        database: Database,
        clock: DatabaseClock,
        attempt_ids: AttemptIds,
        wake_ups: WakeUps,
        tasks: Tasks,
        activity: SubscriptionActivity,
        *,
        jitter: Jitter = retry_jitter,
        settled: Callable[[Iterable[MessageNames]], None] = lambda _: None,
    ) -> None:
        """`settled` is told what was acked or nacked, once that is durable."""
        self._settled = settled
        self._database = database
        self._clock = clock
        self._attempt_ids = attempt_ids
        self._wake_ups = wake_ups
        self._tasks = tasks
        self._jitter = jitter
        self._activity = activity
        self._open: _Batch | None = None
        self._flushing = False  # owned by _run, as is the time when its flush began
        self._began = 0.0

    async def acknowledge(self, acks: Mapping[AttemptName, set[int]], *, exactly_once: bool = False) -> RefusedAcks:
        """Acknowledge messages; returns once that is durable.  Raises Unavailable, also at once.

        Returns those that could not be acked; always none unless `exactly_once`.
        """
        batch = self._batch()
        for attempt, ordinals in acks.items():
            batch.acks_like(attempt, exactly_once).setdefault(attempt, set()).update(ordinals)
            batch.size += len(ordinals)
            # Here rather than in the service: a push that succeeded is an ack as well.
            self._activity.used(attempt.subscription_id)
            if exactly_once:
                batch.exactly_once.add(attempt.subscription_id)
        refused, _ = await asyncio.shield(batch.done)
        return refused.of(acks) if exactly_once else RefusedAcks()

    async def modify_ack_deadline(
        self, messages: Mapping[AttemptName, set[int]], deadline: NewDeadline
    ) -> Mapping[AttemptName, set[int]]:
        """Give messages a new ack deadline; returns once that is durable.  Raises Unavailable.

        Returns those that were stale, and so have not changed.
        """
        batch = self._batch()
        for attempt, ordinals in messages.items():
            batch.change(attempt, ordinals, deadline)
            batch.size += len(ordinals)
        _, stale = await asyncio.shield(batch.done)
        return _own(messages, stale)

    def _batch(self) -> _Batch:
        loop = asyncio.get_running_loop()
        if self._flushing and loop.time() - self._began > MAX_WAIT_SECONDS:
            raise Unavailable(_TOO_MANY)
        if self._open is None:
            self._open = _Batch(loop.create_future())
        elif self._open.size > MAX_WAITING_IDS:
            raise Unavailable(_TOO_MANY)
        if not self._flushing:
            self._flushing, self._began = True, loop.time()
            self._tasks.start(self._run(), name="flush acks")
        return self._open

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._open is not None:
                batch, self._open = self._open, None
                self._began = loop.time()
                stalled = loop.call_later(MAX_WAIT_SECONDS, self._refuse_waiting)
                try:
                    await self._flush(batch)
                finally:
                    stalled.cancel()
        finally:
            self._flushing = False

    def _refuse_waiting(self) -> None:
        """The flush before them has taken too long."""
        if self._open is not None:
            self._open.fail(Unavailable(_TOO_MANY))
            self._open = None

    async def _flush(self, batch: _Batch) -> None:
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

    async def _write(self, batch: _Batch) -> tuple[RefusedAcks, MessageNames]:
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

    async def _write_deadlines(self, batch: _Batch) -> MessageNames:
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


def _own(
    asked: Mapping[AttemptName, set[int]], stale: Mapping[AttemptName, set[int]]
) -> Mapping[AttemptName, set[int]]:
    """The part of what a whole batch missed that one caller asked for."""
    if not stale:
        return {}
    mine = {attempt: ordinals & stale.get(attempt, set()) for attempt, ordinals in asked.items()}
    return {attempt: ordinals for attempt, ordinals in mine.items() if ordinals}


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
