"""Runs the ticks of schedules: a tick appends its message and moves its schedule on in one transaction (J2).

The transaction locks the schedule's row, so only one process runs its ticks (as with operations,
docs/decisions/0031). A tick that is not committed has not happened, and the lock of a process that is killed is
released.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from broker.core.context.core import Core
from broker.core.log.appending import ShardClosed, ShardFrozen, append_to_shards
from broker.core.log.partitions import PartitionMissing, with_partitions
from broker.core.process.next_due import NextDue
from broker.core.publishing.preparation import (
    Preparation,
    Prepared,
    Published,
    batches_of,
    first_due_at,
    published_of,
)
from broker.core.publishing.publish_rights import CheckPublisher, allow_any_publisher
from broker.core.publishing.publishing_rules import SCHEDULE
from broker.db.driver.hot_connection import HotConnection
from broker.db.driver.statements import COMMIT
from broker.features.schedules import rows as store
from broker.features.schedules.schedule import Schedule, TickOutcome, TickRecord, made_by, take_due
from broker.model.errors import Aborted, BrokerError, Internal, Unavailable
from broker.model.message import NewMessage
from broker.model.names import project_of
from broker.model.timestamps import format_timestamp
from broker.model.topic import Topic
from broker.observability.log import fields_of, reason
from broker.observability.metrics.families import TICK_LATENESS, TICKS

TURN_SECONDS = 2.0
MESSAGE_SECONDS = 6.0
_TRIES = 3  # while the topic of a tick changes
_LONGEST_REASON = 500  # characters
_REPEATS = "It repeats an earlier message, whose id it has: nothing was stored."
_PASSED_BY = timedelta(
    seconds=20
)  # shorter than QUIET_SECONDS, so that the log has one line while the failure lasts
_SOON = timedelta(seconds=1)  # until the next try after a transient failure


class _CannotTick(Exception):
    """A schedule cannot tick, and other schedules can; nothing has changed."""

    def __init__(self, name: str, why: Exception) -> None:
        super().__init__(name)
        self.name, self.why = name, why


class _TopicChanged(Exception):
    """The cached topic is out of date; nothing has changed."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic


@dataclass(slots=True)
class _Tick:
    """A tick that is to be recorded; its `prepared` message, if it has one, is to be appended."""

    planned_at: datetime | None
    outcome: TickOutcome
    reason: str = ""
    prepared: Prepared | None = None


class ScheduleTicker:
    """Runs the ticks of due schedules, and ticks that a caller asks for.  A process has one."""

    def __init__(
        self,
        core: Core,
        preparation: Preparation,
        next_due: NextDue,
        check_publisher: CheckPublisher = allow_any_publisher,
        *,
        turn_seconds: float = TURN_SECONDS,
        message_seconds: float = MESSAGE_SECONDS,
    ) -> None:
        """`turn_seconds`: the time after which a transaction begins no further tick of its schedule.
        `message_seconds`: the time limit for the transforms and the schema of the topic, for each tick.
        """
        self._turn_seconds, self._message_seconds = turn_seconds, message_seconds
        self._database = core.database
        self._clock = core.clock
        self._resources = core.resources
        self._wake_ups = core.wake_ups
        self._preparation = preparation
        self._next_due = next_due
        self._states = core.states
        self._counts = core.counters.process
        self._check_publisher = check_publisher
        self._tried_again: dict[str, datetime] = {}  # the time of the next try of schedules that could not tick

    async def find_due_projects(self, *, known: Collection[str]) -> list[str]:
        """Return projects ("projects/p") with due schedules that are not in `known`; not all if there are many."""
        async with self._database.hot() as connection:
            return await store.find_due_projects(
                connection, now=self._clock.now(), known=known, but=self._passed_by()
            )

    async def tick_due(self, project: str) -> Sequence[TickRecord] | None:
        """Run the due ticks of one schedule of the project; None: there is none that no other process is running.

        A schedule that cannot tick is skipped for some seconds, so that it does not hold up others.
        """
        now, but = self._clock.now(), self._passed_by()

        async def lock(connection: HotConnection) -> Schedule | None:
            return await store.lock_due(connection, now=now, project=project, but=but)

        try:
            return await self._tick(lock, by_hand=False)
        except _CannotTick as error:
            self._pass_by(error.name, error.why)
            return ()

    async def tick_now(self, name: str) -> TickRecord | None:
        """Run an additional tick, also while the schedule is paused; None: there is no such schedule."""
        try:
            records = await self._tick(lambda connection: store.lock_for_tick(connection, name=name), by_hand=True)
        except _CannotTick as error:
            raise error.why from None
        return None if records is None else records[-1]

    async def next_at(self) -> datetime | None:
        """Return when the next tick is due, of the schedules that are not skipped."""
        async with self._database.hot() as connection:
            return await store.read_next_tick(connection, but=self._passed_by())

    def _passed_by(self) -> list[str]:
        """The schedules that are skipped at present."""
        now = self._clock.now()
        self._tried_again = {name: at for name, at in self._tried_again.items() if now < at <= now + _PASSED_BY}
        return list(self._tried_again)

    def _pass_by(self, name: str, why: Exception) -> None:
        passes = isinstance(why, Unavailable | Aborted)
        self._tried_again[name] = self._clock.now() + (_SOON if passes else _PASSED_BY)
        what = f"{name} cannot tick, and is tried again and again"
        if passes:
            self._states.happens("schedules that cannot tick", name, what, reason(why))
        else:
            what += "; put it anew, or delete it"
            self._states.happens("schedules that cannot tick", name, what, reason(why), error=why)

    async def _tick(
        self, lock: Callable[[HotConnection], Awaitable[Schedule | None]], *, by_hand: bool
    ) -> Sequence[TickRecord] | None:
        """Raises Unavailable, Aborted, _CannotTick."""
        refusal = ""
        for left in reversed(range(_TRIES)):
            tick = partial(self._locked_tick, lock, by_hand=by_hand, refusal=refusal)
            try:
                return await with_partitions(self._database, self._clock.now, tick)
            except _TopicChanged as changed:
                self._resources.drop(changed.topic)
                refusal = "" if left > 1 else "The topic takes nothing just now."
        raise AssertionError("a tick that appends nothing cannot fail so")

    async def _locked_tick(
        self, lock: Callable[[HotConnection], Awaitable[Schedule | None]], *, by_hand: bool, refusal: str
    ) -> Sequence[TickRecord] | None:
        """Raises Unavailable, Aborted, _CannotTick, _TopicChanged, PartitionMissing."""
        schedule = None
        try:
            async with self._database.hot() as connection:
                schedule = await lock(connection)
                if schedule is None:
                    return None
                try:
                    return await self._ticked(connection, schedule, by_hand=by_hand, refusal=refusal)
                except BaseException:
                    await connection.close()  # its transaction is open
                    raise
        except PartitionMissing:
            raise
        except store.UnreadableSchedule as error:
            raise _CannotTick(error.name, Internal(str(error))) from error
        except Exception as error:
            if schedule is None:
                raise
            if isinstance(error, ShardClosed | ShardFrozen):
                raise _TopicChanged(schedule.definition.topic) from error
            raise _CannotTick(schedule.name, error) from error

    async def _ticked(
        self, connection: HotConnection, schedule: Schedule, *, by_hand: bool, refusal: str
    ) -> Sequence[TickRecord]:
        """Run ticks in the transaction that has locked the schedule, and commit it.

        `refusal`: the reason why the ticks are refused; "": they are not.
        """
        now, ticks = self._clock.now(), []
        next_at, planned = schedule.next_at, [now]
        if not by_hand:
            due = take_due(schedule, now)
            next_at, planned = due.next_at, list(due.ticks)
            ticks += [] if due.missed is None else [_missed(*due.missed)]
        topic, why = (None, refusal) if refusal else await self._topic(schedule)
        time = asyncio.get_running_loop().time
        until, first = time() + self._turn_seconds, schedule.ticks + len(ticks) + 1
        for number, moment in enumerate(planned, first):
            if number > first and time() > until:  # the other ticks have another turn
                next_at = moment
                break
            at = None if by_hand else moment
            if topic is None:
                ticks.append(_Tick(at, TickOutcome.REFUSED, why))
            else:
                ticks.append(await self._prepared(topic, made_by(schedule, number, moment), at))
        prepared = [tick.prepared for tick in ticks if tick.prepared is not None]
        published = iter(await self._append(connection, prepared, schedule.created_by))
        records = [
            _record(number, tick, now, next(published) if tick.prepared is not None else None)
            for number, tick in enumerate(ticks, schedule.ticks + 1)
        ]
        await connection.run(*store.ticks_written(schedule, records, next_at), (COMMIT, {}))
        parts = [part for each in prepared for part in each.parts]
        for shard_id in {part.shard_id for part in parts if part.batch.count}:
            self._wake_ups.published(shard_id)
        if (due_at := first_due_at(parts)) is not None:
            self._next_due.notify(due_at)
        self._report(schedule, records)
        return records

    async def _topic(self, schedule: Schedule) -> tuple[Topic | None, str]:
        """Return the topic, or None and the reason why it accepts nothing."""
        name = schedule.definition.topic
        try:
            await self._check_publisher(project_of(schedule.name), name)
            topic = await self._preparation.open_topic(name, SCHEDULE)
            await self._preparation.check_quotas(topic, SCHEDULE, schedule.created_by)
        except Unavailable:
            raise  # the topic has refused nothing, so the tick is tried again
        except BrokerError as error:
            return None, f"{error.code}: {error.message}"
        return topic, ""

    async def _prepared(self, topic: Topic, message: NewMessage, planned_at: datetime | None) -> _Tick:
        """Prepare the message of a tick, within a time limit, because other projects wait for their turns."""
        seconds = self._message_seconds
        try:
            async with asyncio.timeout(seconds):
                return await self._checked(topic, message, planned_at)
        except TimeoutError:
            why = f"DEADLINE_EXCEEDED: The topic's transforms and schema took longer than {seconds:g} s."
            return _Tick(planned_at, TickOutcome.REFUSED, why)

    async def _checked(self, topic: Topic, message: NewMessage, planned_at: datetime | None) -> _Tick:
        try:
            prepared = await self._preparation.prepare(topic, [message], SCHEDULE)
            await self._preparation.take_capacity(prepared)
        except Unavailable:
            raise
        except BrokerError as error:
            return _Tick(planned_at, TickOutcome.REFUSED, f"{error.code}: {error.message}")
        except Exception as error:  # or it would block all other schedules for ever
            return _Tick(planned_at, TickOutcome.REFUSED, f"INTERNAL: {reason(error)}")
        if prepared.dropped:
            return _Tick(planned_at, TickOutcome.DROPPED, "A transform of the topic dropped it.")
        return _Tick(planned_at, TickOutcome.PUBLISHED, "", prepared)

    async def _append(
        self, connection: HotConnection, prepared: Sequence[Prepared], principal: str
    ) -> list[Published]:
        """Append the messages of ticks, in their order."""
        if not prepared:
            return []
        answers = await append_to_shards(connection, batches=batches_of(prepared), now=self._clock.now())
        self._preparation.charge(prepared, SCHEDULE, principal)
        return published_of(prepared, answers)

    def _report(self, schedule: Schedule, records: Sequence[TickRecord]) -> None:
        """Count ticks, and log when the ticks of a schedule begin to be refused, and when that ends."""
        for record in records:
            self._counts[TICKS[record.outcome.lower()]] += 1
            if record.planned_at is not None and record.outcome is TickOutcome.PUBLISHED:
                late = (self._clock.now() - record.planned_at).total_seconds()
                TICK_LATENESS.observe_all(self._counts, [max(int(late * 1e6), 0)])
        before, last = schedule.last_outcome, records[-1] if records else None
        if last is not None and last.outcome != before:
            fields = fields_of(schedule.definition.topic, schedule.name)
            if last.outcome is TickOutcome.REFUSED:
                what = f"{schedule.name} publishes nothing: {last.reason}"
                self._states.report("schedules", what, level=logging.WARNING, fields=fields)
            elif before == TickOutcome.REFUSED:
                self._states.report("schedules", f"{schedule.name} publishes again", fields=fields)


def _record(number: int, tick: _Tick, ran_at: datetime, published: Published | None) -> TickRecord:
    reason = _REPEATS if published is not None and published.repeats else tick.reason
    return TickRecord(
        number=number,
        planned_at=tick.planned_at,
        ran_at=ran_at,
        outcome=tick.outcome,
        reason=reason[:_LONGEST_REASON],
        message_id="" if published is None else published.ids[0],
    )


def _missed(first: datetime, before: datetime) -> _Tick:
    reported = f"Its ticks from {format_timestamp(first)} to before {format_timestamp(before)} were missed."
    return _Tick(first, TickOutcome.MISSED, reported)
