"""Creates, lists, pauses and runs schedules (J2)."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from broker.core.catalog.topic_rows import find_topic
from broker.core.log.messages import encode_messages
from broker.core.process.database_clock import DatabaseClock
from broker.core.process.next_due import NextDue
from broker.core.publishing.publishing_rules import SCHEDULE, check_limits
from broker.core.resources.topic_service import topic_not_found
from broker.db.driver.database import Database, ResourceConnection
from broker.features.schedules import rows as store
from broker.features.schedules.schedule import (
    MAX_SCHEDULES,
    Definition,
    Schedule,
    ScheduleState,
    TickRecord,
    check_template,
    made_by,
)
from broker.features.schedules.ticker import ScheduleTicker
from broker.features.schedules.ticks import check_cron, check_interval
from broker.model.errors import BrokerError, FailedPrecondition, InvalidArgument, QuotaExceeded
from broker.model.message import NewMessage
from broker.model.names import check_name, check_project, not_found, project_of
from broker.model.page import Page, cut_page
from broker.model.preview import UNGUARDED, Preview, Safeguards, preview_of_references
from broker.model.publish_limits import named
from broker.model.timestamps import format_timestamp

_NEWEST = 2**62  # above the number of any tick


class SchedulesService:
    """The schedules of messages that are published again and again."""

    def __init__(
        self, database: Database, clock: DatabaseClock, ticker: ScheduleTicker, next_tick: NextDue
    ) -> None:
        self._database = database
        self._clock = clock
        self._ticker = ticker
        self._next_tick = next_tick

    async def put_schedule(
        self, name: str, definition: Definition, *, created_by: str, keeps_message: bool = False
    ) -> Schedule:
        """Make it, or change one that is there: its next tick stays unless its times change.

        `keeps_message`: it publishes the same message as before, so there must be one of that name and topic.

        Raises InvalidArgument, NotFound (the topic), QuotaExceeded.
        """
        check_name(name, "schedules")
        now = self._clock.now()
        if not keeps_message:
            self._check(name, definition, now)
        async with self._database.transaction() as connection:
            if await find_topic(connection, name=definition.topic) is None:
                raise topic_not_found(definition.topic)
            before = await store.find_schedule(connection, name=name, lock=True)
            if keeps_message:
                if before is None:
                    raise InvalidArgument("One of message and template must be given for a new schedule.")
                if before.definition.topic != definition.topic:  # where the caller may see what is masked here
                    raise InvalidArgument(
                        "One of message and template must be given with another topic "
                        f"(topic={definition.topic}, until now {before.definition.topic})."
                    )
                definition = definition.with_message_of(before.definition)
                self._check(name, definition, now)
            if (
                before is None
                and await store.count_schedules(connection, project=project_of(name)) >= MAX_SCHEDULES
            ):
                raise _too_many(project_of(name))
            schedule = _put(name, definition, before, now, created_by)
            await store.write_schedule(connection, schedule=schedule)
        self._changed(schedule)
        return schedule

    async def get_schedule(self, name: str) -> Schedule:
        """Raises NotFound."""
        async with self._database.transaction() as connection:
            return await _found(connection, name)

    async def list_schedules(self, project: str, page: Page) -> tuple[Sequence[Schedule], str]:
        """A page by name, and the token of the next.  Raises InvalidArgument."""
        check_project(project)
        async with self._database.transaction() as connection:
            page = await store.cut_page_of_schedules(connection, project=project, page=page)
            found = await store.list_schedules(connection, project=project, page=page)
        return cut_page(found, page.size, lambda schedule: schedule.name)

    async def delete_schedule(self, name: str, safeguards: Safeguards = UNGUARDED) -> Preview | None:
        """Deletes a schedule.  It makes no tick after the answer.

        Returns what would be affected if that is all that was asked for.  Raises NotFound, NotAsExpected.
        """
        async with self._database.transaction() as connection:
            if safeguards.asked:
                safeguards.check_existed((await _found(connection, name, lock=True)).created_at, name)
                if preview := safeguards.previewed(preview_of_references((), time=self._clock.now())):
                    return preview
            if not await store.delete_schedule(connection, name=name):
                raise _not_found(name)
        return None

    async def pause_schedule(self, name: str, *, by: str = "") -> Schedule:
        """Pauses a schedule.  It makes no tick after the answer, until it is resumed.  Raises NotFound."""
        now = self._clock.now()
        async with self._database.transaction() as connection:
            schedule = await _found(connection, name, lock=True)
            paused = schedule
            if not schedule.paused:
                paused = replace(
                    schedule, paused=True, next_at=None, updated_at=now, paused_at=now, paused_by=by or None
                )
            await store.write_schedule(connection, schedule=paused)
        return paused

    async def resume_schedule(self, name: str) -> Schedule:
        """Resumes a schedule with the first tick from now on.  Raises NotFound."""
        now = self._clock.now()
        async with self._database.transaction() as connection:
            schedule = await _found(connection, name, lock=True)
            if schedule.paused:
                schedule = replace(
                    schedule,
                    paused=False,
                    next_at=schedule.after(now),
                    updated_at=now,
                    paused_at=None,
                    paused_by=None,
                )
                await store.write_schedule(connection, schedule=schedule)
        self._changed(schedule)
        return schedule

    async def run_schedule(self, name: str) -> TickRecord:
        """Makes one more tick now, even if the schedule is paused.

        Raises NotFound, FailedPrecondition (it was refused).
        """
        record = await self._ticker.tick_now(name)
        if record is None:
            raise _not_found(name)
        if not record.message_id:
            raise FailedPrecondition(f"The topic did not take it: {record.reason} (resource={name}).")
        return record

    async def next_ticks(self, name: str, count: int) -> Sequence[datetime]:
        """The times of the next ticks, as they would be if it were not paused.  Raises NotFound."""
        schedule = await self.get_schedule(name)
        ticks: list[datetime] = []
        tick = schedule.next_at if schedule.next_at is not None else schedule.after(self._clock.now())
        while tick is not None and len(ticks) < count and schedule.state is not ScheduleState.ENDED:
            ticks.append(tick)
            tick = schedule.after(tick)
        return ticks

    async def list_ticks(self, name: str, size: int) -> Sequence[TickRecord]:
        """Lists the outcomes of the last ticks, the newest first.  Raises NotFound."""
        async with self._database.transaction() as connection:
            await _found(connection, name)
            return await store.list_ticks(connection, name=name, before=_NEWEST, size=size)

    def _check(self, name: str, definition: Definition, now: datetime) -> None:
        check_name(definition.topic, "topics")
        if bool(definition.cron) == bool(definition.interval_seconds):
            raise InvalidArgument("One of schedule and interval must be given.")
        check_cron(definition.cron or "* * * * *", definition.time_zone, now)
        check_interval(timedelta(seconds=definition.interval_seconds or 1))
        if definition.end is not None and definition.end <= (definition.start or now):
            raise InvalidArgument(
                f"end must be later than start, and than now (end={format_timestamp(definition.end)})."
            )
        check_template(definition)
        message = NewMessage(definition.data, dict(definition.attributes), ordering_key=definition.ordering_key)
        sample = Schedule(name=name, definition=definition, anchor=now, next_at=now, created_at=now, updated_at=now)
        made = made_by(sample, 1, now)
        with named("template" if definition.is_template else "message"):
            check_limits([message], SCHEDULE)
            check_limits([made], SCHEDULE)
            encode_messages([made])

    def _changed(self, schedule: Schedule) -> None:
        if schedule.next_at is not None:
            self._next_tick.notify(schedule.next_at)


def _put(name: str, definition: Definition, before: Schedule | None, now: datetime, created_by: str) -> Schedule:
    anchor = (definition.start or now).replace(microsecond=0)
    if before is not None:
        same = definition.ticks_as(before.definition)
        schedule = replace(
            before, definition=definition, anchor=before.anchor if same else anchor, updated_at=now,
            created_by=created_by,
        )  # fmt: skip
        if same or before.paused:
            return schedule
    else:
        schedule = Schedule(
            name=name,
            definition=definition,
            anchor=anchor,
            next_at=None,
            created_by=created_by,
            created_at=now,
            updated_at=now,
        )
    next_at = schedule.after(now)
    if next_at is None:
        raise InvalidArgument("The schedule has no tick between now, or its start, and its end.")
    return replace(schedule, next_at=next_at)


async def _found(connection: ResourceConnection, name: str, *, lock: bool = False) -> Schedule:
    schedule = await store.find_schedule(connection, name=name, lock=lock)
    if schedule is None:
        raise _not_found(name)
    return schedule


def _not_found(name: str) -> BrokerError:
    return not_found("There is no such schedule", name, "schedules")


def _too_many(project: str) -> QuotaExceeded:
    return QuotaExceeded(
        f"{project} has {MAX_SCHEDULES} schedules, as many as a project may have: delete one.",
        log_message="A project has as many schedules as may be.",
        retry_seconds=None,
    )
