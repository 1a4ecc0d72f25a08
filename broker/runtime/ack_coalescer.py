"""Concurrent acks and deadline changes become one statement each a shard (C7).

Official clients send a deadline change for every response the moment they get it, and acks soon after; both meet
here.  Within one flush an ack wins over any deadline change of the same message, and the last change over those
before it.  One flush is in flight; what comes meanwhile goes with the next.
"""

import asyncio
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

from broker.domain.ack_id import AttemptName
from broker.domain.attempt_ids import AttemptIds
from broker.domain.errors import Aborted, BrokerError, Unavailable
from broker.domain.retry_policy import RetryPolicy
from broker.runtime.database_clock import DatabaseClock
from broker.runtime.retrying import retrying
from broker.runtime.tasks import Tasks
from broker.runtime.wake_ups import WakeUps
from broker.store.database import Database
from broker.store.delivery_attempts import DeadlineChange, Positions, acknowledge, modify_ack_deadline
from broker.store.hot_connection import HotConnection

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class NewDeadline:
    """Seconds from now (0 = nack); `retry_policy` delays a nack."""

    seconds: int
    retry_policy: RetryPolicy | None = None


@dataclass(slots=True)
class _Batch:
    done: asyncio.Future[None]
    acks: Positions = field(default_factory=dict)
    deadlines: dict[AttemptName, dict[int, NewDeadline]] = field(default_factory=dict)


class AckCoalescer:
    """Writes acks and deadline changes.  The open batch is filled by callers and taken by the one flush task."""

    def __init__(
        self,
        database: Database,
        clock: DatabaseClock,
        attempt_ids: AttemptIds,
        wake_ups: WakeUps,
        tasks: Tasks,
    ) -> None:
        self._database = database
        self._clock = clock
        self._attempt_ids = attempt_ids
        self._wake_ups = wake_ups
        self._tasks = tasks
        self._open: _Batch | None = None
        self._flushing = False  # owned by _run

    async def acknowledge(self, acks: Mapping[AttemptName, set[int]]) -> None:
        """Acknowledge messages; returns once that is durable.  Stale ones are ignored.  Raises Unavailable."""
        batch = self._batch()
        for attempt, positions in acks.items():
            batch.acks.setdefault(attempt, set()).update(positions)
        await asyncio.shield(batch.done)

    async def modify_ack_deadline(self, messages: Mapping[AttemptName, set[int]], deadline: NewDeadline) -> None:
        """Give messages a new ack deadline; returns once that is durable.  Stale ones are ignored."""
        batch = self._batch()
        for attempt, positions in messages.items():
            batch.deadlines.setdefault(attempt, {}).update(dict.fromkeys(positions, deadline))
        await asyncio.shield(batch.done)

    def _batch(self) -> _Batch:
        if self._open is None:
            self._open = _Batch(asyncio.get_running_loop().create_future())
        if not self._flushing:
            self._flushing = True
            self._tasks.start(self._run(), name="flush acks")
        return self._open

    async def _run(self) -> None:
        try:
            while self._open is not None:
                batch, self._open = self._open, None
                await self._flush(batch)
        finally:
            self._flushing = False

    async def _flush(self, batch: _Batch) -> None:
        try:
            await retrying(lambda: self._write(batch), Aborted, Unavailable)  # may be repeated without harm
        except BrokerError as error:
            batch.done.set_exception(error)
            batch.done.exception()  # every caller may be gone
        except BaseException:
            batch.done.set_exception(Unavailable("The broker stopped."))
            batch.done.exception()
            raise
        else:
            batch.done.set_result(None)

    async def _write(self, batch: _Batch) -> None:
        await self._write_acks(batch.acks)
        await self._write_deadlines(batch)

    async def _write_acks(self, acks: Positions) -> None:
        for shard_id, shard_acks in _by_shard(acks):
            async with self._database.hot() as connection:
                missing = await acknowledge(connection, shard_id=shard_id, acks=shard_acks)
                if missing:  # gone, or moved to another part of the attempt while we waited: look once more
                    await acknowledge(connection, shard_id=shard_id, acks=missing)

    async def _write_deadlines(self, batch: _Batch) -> None:
        open_positions = {
            attempt: {
                position: deadline
                for position, deadline in deadlines.items()
                if position not in batch.acks.get(attempt, ())
            }
            for attempt, deadlines in batch.deadlines.items()
        }
        for wave in _waves(open_positions):
            for shard_id, changes in _by_shard(wave):
                await self._write_wave(shard_id, changes)
        for subscription_id in {attempt.subscription_id for attempt in batch.deadlines}:
            self._wake_ups.redeliverable(subscription_id)

    async def _write_wave(self, shard_id: int, wave: Mapping[AttemptName, tuple[NewDeadline, set[int]]]) -> None:
        now = self._clock.now()
        changes = [
            DeadlineChange(
                attempt,
                frozenset(positions),
                now + timedelta(seconds=deadline.seconds),
                nack=deadline.seconds == 0,
                retry_policy=deadline.retry_policy,
            )
            for attempt, (deadline, positions) in wave.items()
        ]
        async with self._database.hot() as connection:
            missing = await self._modify(connection, shard_id, changes)
            again = [
                DeadlineChange(c.attempt, frozenset(missing[c.attempt]), c.next_delivery_at, c.nack, c.retry_policy)
                for c in changes
                if c.attempt in missing
            ]
            if again:
                await self._modify(connection, shard_id, again)

    async def _modify(self, connection: HotConnection, shard_id: int, changes: list[DeadlineChange]) -> Positions:
        microseconds = int(self._clock.now().timestamp() * 1_000_000)
        return await modify_ack_deadline(
            connection,
            shard_id=shard_id,
            changes=changes,
            new_parts=list(self._attempt_ids.take_parts(len(changes), now_microseconds=microseconds)),
            jitter=random.uniform(0, 0.1),  # noqa: S311  (spreads retries, protects nothing)
        )


def _by_shard(attempts: Mapping[AttemptName, V]) -> Iterable[tuple[int, dict[AttemptName, V]]]:
    shards: dict[int, dict[AttemptName, V]] = {}
    for attempt, value in attempts.items():
        shards.setdefault(attempt.shard_id, {})[attempt] = value
    return sorted(shards.items())


def _waves(
    deadlines: Mapping[AttemptName, Mapping[int, NewDeadline]],
) -> list[dict[AttemptName, tuple[NewDeadline, set[int]]]]:
    """One statement changes an attempt once, so differing deadlines of one attempt go in several waves."""
    waves: list[dict[AttemptName, tuple[NewDeadline, set[int]]]] = []
    for attempt, positions in deadlines.items():
        groups: dict[NewDeadline, set[int]] = {}
        for position, deadline in positions.items():
            groups.setdefault(deadline, set()).add(position)
        for number, group in enumerate(groups.items()):
            if number == len(waves):
                waves.append({})
            waves[number][attempt] = group
    return waves
