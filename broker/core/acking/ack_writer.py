"""Writes the acks and deadline changes of one shard (core/acking/ack_coalescer.py decides when).

Each kind is one statement and one commit.  A statement runs once more for messages that it did not find, because
another statement that it waited for may have moved them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar

from broker.core.acking.ack_batch import Batch, NewDeadline, RefusedAcks
from broker.core.acking.delivery_attempts import (
    AckedRow,
    acknowledge,
    acknowledge_exactly_once,
    acknowledge_in_order,
    merge_parts,
    modify_ack_deadline,
    modify_ordered_deadline,
)
from broker.core.acking.delivery_counts import DeliveryCounts
from broker.core.acking.delivery_recorder import DeliveryRecords
from broker.core.acking.traces import find_traces
from broker.core.context.core import Core
from broker.core.process.jitter import Jitter, retry_jitter
from broker.core.records.journal import Ledger, written_down
from broker.db.driver.database import Hot
from broker.db.driver.hot_connection import HotConnection
from broker.model.ack_id import AttemptName, MessageNames
from broker.model.deadline_change import DeadlineChange

if TYPE_CHECKING:
    from broker.observability.tracing import Tracing

V = TypeVar("V")

# Beyond some thousand rows a larger commit gains nothing, and takes longer than it may.
MAX_STATEMENT_ATTEMPTS = 4_000
PARTS_BEFORE_MERGE = 32  # partial changes of an attempt: the most parts that they may leave
_MAX_SPLIT_ATTEMPTS = 10_000  # attempts whose changes are counted


class AckWriter:
    """The writer of acks and new deadlines.  All that it does may be repeated without harm."""

    def __init__(
        self,
        core: Core,
        *,
        jitter: Jitter = retry_jitter,
        records: DeliveryRecords | None = None,
    ) -> None:
        """`records`: where acknowledgements are recorded (None: nowhere)."""
        self._records = records
        self._counts = DeliveryCounts(core.counters)
        self._database = core.database
        self._clock = core.clock
        self._attempt_ids = core.attempt_ids
        self._wake_ups = core.wake_ups
        self._jitter = jitter
        self._splits: dict[AttemptName, int] = {}  # how often each attempt was split since its parts were merged

    async def write(self, shard_id: int, batch: Batch) -> tuple[RefusedAcks, MessageNames]:
        """Returns the acks that were refused, and the messages whose deadline change was stale.

        Raises Aborted, Unavailable: some of it may be written.
        """
        if self._counts.counters.tracing is not None:
            await self._find_traces(shard_id, batch, self._counts.counters.tracing)
        if batch.acks:
            await self._write_acks(shard_id, batch)
            if not (batch.exactly_once_acks or batch.acks_in_order or batch.deadlines):
                return RefusedAcks(), {}  # which is the usual case
        stale = await self._write_exactly_once_acks(shard_id, batch)
        refused = await self._write_acks_in_order(shard_id, batch)
        refused = RefusedAcks({**refused.stale, **stale}, refused.out_of_order)
        return refused, await self._write_deadlines(shard_id, batch)

    def _connection(self, shard_id: int, *, journaled: bool) -> Hot:
        """Returns a connection to change attempts by.  The coordinator gives out the numbers of a journal."""
        return self._database.hot() if journaled else self._database.at_any_node(shard_id)

    def _written_down(
        self, connection: HotConnection, shard_id: int, attempts: Iterable[AttemptName], *, journaled: bool
    ) -> AbstractAsyncContextManager[Ledger | None]:
        """Returns a ledger for the attempts.

        If they are `journaled`, their change and its writes are one transaction.
        """
        names = list(attempts) if journaled else []
        return written_down(
            connection, shard_id=shard_id, attempts=names, journaled=journaled, clock=self._clock.now
        )

    async def _find_traces(self, shard_id: int, batch: Batch, tracing: "Tracing") -> None:
        """Finds the trace attributes of attempts that are acked here and were delivered by another process.

        They are read before the acks, since an acked attempt is no longer stored.
        """
        acked = chain(batch.acks, batch.exactly_once_acks, batch.acks_in_order)
        unknown = [each for each in acked if not tracing.knows((shard_id, each.attempt_id))]
        if not unknown:
            return
        async with self._database.at_any_node(shard_id) as connection:
            found = await find_traces(connection, shard_id=shard_id, attempts=unknown)
        for attempt, attributes in found.items():
            name = self._counts.counters.name_of(attempt.subscription_id)
            if name is not None:
                tracing.found(name, (shard_id, attempt.attempt_id), attributes)

    async def _write_acks(self, shard_id: int, batch: Batch) -> None:
        acks, is_journaled = batch.acks, batch.journaled
        for some in _statements(acks.items()):
            async with (
                self._connection(shard_id, journaled=is_journaled) as connection,
                self._written_down(connection, shard_id, acks, journaled=is_journaled) as ledger,
            ):
                acked: list[AckedRow] = []
                missing = await acknowledge(connection, shard_id=shard_id, acks=dict(some), acked=acked)
                if missing:  # gone, or moved to another part of the attempt meanwhile: try once more
                    missing = await acknowledge(connection, shard_id=shard_id, acks=missing, acked=acked)
                if ledger is not None:
                    ledger.acked(some, [missing], batch.attribution)
            now = self._clock.now()
            self._record(shard_id, acked, batch, now)
            self._counts.acked(some, missing, now)

    def _record(self, shard_id: int, acked: Sequence[AckedRow], batch: Batch, now: datetime) -> None:
        """Records what was acknowledged, once that is committed."""
        if self._records is not None:
            self._records.acknowledged(shard_id, acked, batch.attribution, now)

    async def _write_exactly_once_acks(self, shard_id: int, batch: Batch) -> MessageNames:
        stale: MessageNames = {}
        acks, is_journaled = batch.exactly_once_acks, batch.journaled
        for some in _statements(acks.items()):
            now = self._clock.now()
            async with (
                self._connection(shard_id, journaled=is_journaled) as connection,
                self._written_down(connection, shard_id, acks, journaled=is_journaled) as ledger,
            ):
                acked: list[AckedRow] = []
                write = partial(acknowledge_exactly_once, connection, shard_id=shard_id, now=now, acked=acked)
                missing = await write(acks=dict(some))
                if missing:
                    missing = await write(acks=missing)
                    stale |= missing
                if ledger is not None:
                    ledger.acked(some, [missing], batch.attribution)
            self._record(shard_id, acked, batch, now)
            self._counts.acked(some, missing, now)
        return stale

    async def _write_acks_in_order(self, shard_id: int, batch: Batch) -> RefusedAcks:
        stale: MessageNames = {}
        out_of_order: MessageNames = {}
        acks, exactly_once, is_journaled = batch.acks_in_order, batch.exactly_once, batch.journaled
        for some in _statements(acks.items()):
            now = self._clock.now()
            async with (
                self._connection(shard_id, journaled=is_journaled) as connection,
                self._written_down(connection, shard_id, acks, journaled=is_journaled) as ledger,
            ):
                acked: list[AckedRow] = []
                common: dict[str, Any] = {"exactly_once": exactly_once, "now": now, "acked": acked}
                write = partial(acknowledge_in_order, connection, shard_id=shard_id, **common)
                tries = [await write(acks=dict(some))]
                missing = {a: of_it for a, of_it in tries[0].stale.items() if a.subscription_id in exactly_once}
                if missing:  # gone, or acked and moved by a claim meanwhile: try once more
                    tries.append(await write(acks=missing))
                if ledger is not None:
                    refused = [{**tries[0].stale, **{attempt: set() for attempt in missing}, **tries[-1].stale}]
                    ledger.acked(some, refused + [each.out_of_order for each in tries], batch.attribution)
            self._record(shard_id, acked, batch, now)
            self._counts.acked_in_order(some, tries, missing, now)
            stale |= tries[-1].stale
            for tried in tries:
                for attempt, ordinals in tried.out_of_order.items():
                    out_of_order.setdefault(attempt, set()).update(ordinals)
                for subscription_id in tried.due:
                    self._wake_ups.redeliverable(subscription_id)
        return RefusedAcks(stale, out_of_order)

    async def _write_deadlines(self, shard_id: int, batch: Batch) -> MessageNames:
        stale: MessageNames = {}
        for wave in _waves(batch.not_acked()):
            for changes in _statements(wave):
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
                attribution=deadline.attribution,
            )
            for attempt, (deadline, ordinals) in wave
        ]
        is_journaled = any(change.attribution is not None for change in changes)
        async with (
            self._connection(shard_id, journaled=is_journaled) as connection,
            self._written_down(
                connection, shard_id, [attempt for attempt, _ in wave], journaled=is_journaled
            ) as ledger,
        ):
            missing = await self._modify(connection, shard_id, changes)
            again = [
                replace(change, ordinals=rest)
                for change in changes
                if (rest := change.ordinals & missing.get(change.attempt, set()))
            ]
            stale = await self._modify(connection, shard_id, again) if again else {}
            if ledger is not None:
                ledger.changed(changes, stale)
            await self._merge(connection, shard_id, changes)
        self._counts.nacked(changes, stale)
        return stale

    async def _merge(self, connection: HotConnection, shard_id: int, changes: Iterable[DeadlineChange]) -> None:
        """Merges the parts of attempts that were changed message by message PARTS_BEFORE_MERGE times."""
        splits = self._splits
        many: list[AttemptName] = []
        for change in changes:
            attempt = change.attempt
            if attempt.ordered or len(change.ordinals) == attempt.count:
                continue
            splits[attempt] = splits.pop(attempt, 0) + 1  # in the order of their last change
            if splits[attempt] == PARTS_BEFORE_MERGE:
                many.append(attempt)
        if many:
            for attempt in many:
                del splits[attempt]
            await merge_parts(connection, shard_id=shard_id, attempts=many, now=self._clock.now())
        while len(splits) > _MAX_SPLIT_ATTEMPTS:
            del splits[next(iter(splits))]

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


def _statements(items: Iterable[V]) -> Iterator[Sequence[V]]:
    """Yields the items in parts that fit into one statement."""
    rest = iter(items)
    while part := list(islice(rest, MAX_STATEMENT_ATTEMPTS)):
        yield part


def _waves(
    deadlines: Mapping[AttemptName, Mapping[int, NewDeadline]],
) -> list[list[tuple[AttemptName, tuple[NewDeadline, set[int]]]]]:
    """Divides the changes into waves; those of one wave are written together.

    A wave has one change of an attempt that holds an ordering key, since such a change may take back messages that
    another one names.
    """
    waves: list[list[tuple[AttemptName, tuple[NewDeadline, set[int]]]]] = []
    for attempt, ordinals in deadlines.items():
        for number, group in enumerate(_groups(ordinals).items()):
            wave = number if attempt.ordered else 0
            if wave == len(waves):
                waves.append([])
            waves[wave].append((attempt, group))
    return waves


def _groups(ordinals: Mapping[int, NewDeadline]) -> dict[NewDeadline, set[int]]:
    """Groups the ordinals by their new deadline.  Most often there is only one, which is handled without a loop."""
    new = list(ordinals.values())
    if new and new.count(new[0]) == len(new):
        return {new[0]: set(ordinals)}
    groups: dict[NewDeadline, set[int]] = {}
    for ordinal, deadline in ordinals.items():
        groups.setdefault(deadline, set()).add(ordinal)
    return groups
