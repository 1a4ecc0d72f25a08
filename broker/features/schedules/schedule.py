"""A schedule: a message that is published again and again (J2).

    ACTIVE ◄──:resume── PAUSED      a paused schedule does not tick, and its missed ticks are not made up for
      │    ───:pause──►
      └──its last tick──► ENDED

`missed` determines what happens to ticks whose time passed while no broker ran.  A tick that is late by less than
GRACE is late, but not missed.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from broker.features.schedules.ticks import Cron, Interval, Timing, next_tick
from broker.model.errors import InvalidArgument
from broker.model.message import NewMessage
from broker.model.names import leaf
from broker.model.timestamps import format_timestamp

GRACE = timedelta(seconds=60)
MADE_UP = timedelta(days=1)  # of ALL: what was missed longer ago stays missed
MAX_AT_ONCE = 100  # ticks of a transaction
MAX_SCHEDULES = 10_000  # of a project
MAX_BODY = 256 * 1024  # bytes of a message: a project's schedules are kept whole
KEPT_TICKS = 100  # of each schedule, in its history
MAX_REPORTED_TICKS = 100  # of those to come
SCHEDULE, TICK = "broker-schedule", "broker-tick"  # attributes of what a tick publishes

_PLACEHOLDER = re.compile(r"\{\{([^{}]{0,40})\}\}")


class Missed(StrEnum):
    """The policy for ticks that were missed."""

    SKIP = "SKIP"  # nothing
    ONE = "ONE"  # one for all of them, the last
    ALL = "ALL"  # each of the last day


class ScheduleState(StrEnum):
    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    ENDED = "ENDED"


class TickOutcome(StrEnum):
    PUBLISHED = "PUBLISHED"
    DROPPED = "DROPPED"  # by a transform of the topic
    REFUSED = "REFUSED"  # by the topic, as a publish would have been
    MISSED = "MISSED"  # one entry for all that were


class Definition(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The definition of a schedule, as its creator gave it.

    Exactly one of `cron` and `interval_seconds` is given.
    """

    topic: str
    data: bytes = b""
    attributes: dict[str, str] = {}
    ordering_key: str = ""
    is_template: bool = False
    cron: str = ""
    interval_seconds: int = 0
    time_zone: str = "UTC"
    start: datetime | None = None
    end: datetime | None = None
    missed: Missed = Missed.ONE

    def with_message_of(self, other: "Definition") -> "Definition":
        """Return the same times with the message of another definition."""
        return msgspec.structs.replace(
            self,
            data=other.data,
            attributes=other.attributes,
            ordering_key=other.ordering_key,
            is_template=other.is_template,
        )

    def ticks_as(self, other: "Definition") -> bool:
        """Whether both have the same ticks."""
        mine, theirs = (
            (each.cron, each.interval_seconds, each.time_zone, each.start, each.end) for each in (self, other)
        )
        return mine == theirs


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A stored schedule.

    `anchor`: from when an interval is counted; `next_at`: its next tick, None: there is none; `ticks`: how many
    entries its history ever had; `paused_at`, `paused_by`: since when it is paused, and by whom, if that is known.
    """

    name: str
    definition: Definition
    anchor: datetime
    next_at: datetime | None
    paused: bool = False
    ticks: int = 0
    last_outcome: str | None = None
    created_by: str = ""
    created_at: datetime
    updated_at: datetime
    paused_at: datetime | None = None
    paused_by: str | None = None

    @property
    def timing(self) -> Timing:
        if self.definition.cron:
            return Cron(self.definition.cron, self.definition.time_zone)
        return Interval(timedelta(seconds=self.definition.interval_seconds), self.anchor)

    @property
    def state(self) -> ScheduleState:
        if self.paused:
            return ScheduleState.PAUSED
        return ScheduleState.ENDED if self.next_at is None else ScheduleState.ACTIVE

    def after(self, moment: datetime) -> datetime | None:
        """The first tick later than `moment`."""
        return next_tick(self.timing, moment, start=self.definition.start, end=self.definition.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class TickRecord:
    """An entry of a history.  `planned_at`: None: it was asked for by hand."""

    number: int
    planned_at: datetime | None
    ran_at: datetime
    outcome: TickOutcome
    reason: str = ""
    message_id: str = ""


@dataclass(frozen=True, slots=True)
class Due:
    """The due actions of a schedule: a tick for each of `ticks`, and then the next tick at `next_at`.

    The ticks of `missed`, from its first moment to before its second, are skipped.
    """

    ticks: Sequence[datetime]
    missed: tuple[datetime, datetime] | None
    next_at: datetime | None


def take_due(schedule: Schedule, now: datetime) -> Due:
    """Returns the due actions of a schedule that is due."""
    tick = schedule.next_at
    assert tick is not None
    missed = None
    taken_up = _taken_up(schedule, tick, now)
    if tick < taken_up:
        missed = tick, taken_up
        tick = schedule.after(taken_up - timedelta(microseconds=1))
    ticks: list[datetime] = []
    while tick is not None and tick <= now and len(ticks) < MAX_AT_ONCE:
        ticks.append(tick)
        tick = schedule.after(tick)
    return Due(ticks, missed, tick)


def _taken_up(schedule: Schedule, first: datetime, now: datetime) -> datetime:
    """Ticks before this moment are left out."""
    late = now - GRACE
    if first >= late:
        return first
    match schedule.definition.missed:
        case Missed.SKIP:
            return late
        case Missed.ALL:
            return now - MADE_UP
        case Missed.ONE:
            return _last_tick(schedule, first, late)


def _last_tick(schedule: Schedule, first: datetime, until: datetime) -> datetime:
    """The last tick before `until`, by halving what lies between: there may be a year of seconds."""
    low, high = 0, int((until - first).total_seconds()) + 1  # seconds behind `first`, which is a tick
    last = first
    while high - low > 1:
        middle = (low + high) // 2
        tick = schedule.after(first + timedelta(seconds=middle - 1))
        if tick is not None and tick < until:
            low, last = middle, tick
        else:
            high = middle
    return last


def made_by(schedule: Schedule, number: int, planned_at: datetime) -> NewMessage:
    """The message of a tick."""
    definition = schedule.definition
    values = {"time": format_timestamp(planned_at), "schedule": leaf(schedule.name), "tick": str(number)}
    attributes = definition.attributes
    data = definition.data
    if definition.is_template:
        attributes = {name: _filled(text, values) for name, text in attributes.items()}
        for name, value in values.items():
            data = data.replace(f"{{{{{name}}}}}".encode(), value.encode())
    reported = {SCHEDULE: values["schedule"], TICK: values["time"]}
    return NewMessage(data=data, attributes={**attributes, **reported}, ordering_key=definition.ordering_key)


def check_template(definition: Definition) -> None:
    """Raises InvalidArgument for a placeholder that nothing stands for, and for a body that is too large."""
    if len(definition.data) > MAX_BODY:
        raise InvalidArgument(
            f"The data of a schedule's message is larger than {MAX_BODY} bytes (data={len(definition.data)} bytes)."
        )
    if not definition.is_template:
        return
    texts = [definition.data.decode(errors="replace"), *definition.attributes.values()]
    for text in texts:
        for found in _PLACEHOLDER.findall(text):
            if found not in ("time", "schedule", "tick"):
                raise InvalidArgument(
                    f"template has the placeholder {{{{{found}}}}}: there are {{{{time}}}}, {{{{schedule}}}} and "
                    "{{tick}}."
                )


def _filled(text: str, values: dict[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda match: values[match[1]], text)
