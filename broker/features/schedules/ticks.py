"""Computes when a schedule ticks: by cron in a time zone, or by an interval (J2).

Cron's fields refer to local time.  A local time that occurs twice ticks the first time.  Local times that never
occur tick together, at the moment to which the clock is advanced.  So there is exactly one tick for each time that
cron names, and never two at one moment.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from broker.model.errors import InvalidArgument

MAX_EXPRESSION = 200  # characters
MIN_INTERVAL, MAX_INTERVAL = timedelta(seconds=1), timedelta(days=366)
_MAX_ZONE = 100  # characters
_SECOND = timedelta(seconds=1)
# The fields of an expression and how many values each has.
_FIELDS = (("second", 60), ("minute", 60), ("hour", 24), ("day-of-month", 31), ("month", 12), ("day-of-week", 7))
_LAST = datetime(9000, 1, 1, tzinfo=UTC)  # before the last time that can be written


@dataclass(frozen=True, slots=True)
class Cron:
    """Five fields, or six with the seconds first, by the wall clocks of a zone."""

    expression: str
    time_zone: str = "UTC"

    def after(self, moment: datetime) -> datetime | None:
        """The first tick later than `moment`; None: there is none for 50 years."""
        zone = ZoneInfo(self.time_zone)
        wall = moment.astimezone(zone).replace(tzinfo=None)
        # What is shown a second time was ticked for the first time: the search begins where that ends.
        start = _end_of_repetition(moment, zone) if moment.astimezone(zone).fold else wall
        for shown in CronSim(self.expression, start.replace(fold=0)):
            tick = _moment_of(shown, zone)
            if tick > moment:
                return tick
        return None


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval between ticks from a moment on, whatever clocks on the wall show."""

    every: timedelta
    anchor: datetime

    def after(self, moment: datetime) -> datetime | None:
        """The first tick later than `moment`.  The anchor is a tick."""
        if moment < self.anchor:
            return self.anchor
        tick = self.anchor + ((moment - self.anchor) // self.every + 1) * self.every
        return tick if tick < _LAST else None


Timing = Cron | Interval


def next_tick(timing: Timing, after: datetime, *, start: datetime | None, end: datetime | None) -> datetime | None:
    """The first tick later than `after`, from `start` to `end`, both of which may be ticks; None: there is none."""
    if start is not None and start > after:
        after = start - timedelta(microseconds=1)
    tick = timing.after(after)
    return None if tick is None or (end is not None and tick > end) else tick


def check_cron(expression: str, time_zone: str, now: datetime) -> Cron:
    """Raises InvalidArgument that names the field: it cannot be read, or never ticks."""
    check_zone(time_zone)
    shown = expression[:MAX_EXPRESSION]
    if len(expression) > MAX_EXPRESSION:
        raise InvalidArgument(f"schedule is longer than {MAX_EXPRESSION} characters (schedule={shown!r}).")
    try:
        CronSim(expression, now.replace(tzinfo=None))
    except (CronSimError, AssertionError, TypeError, ValueError) as error:
        why = str(error) if isinstance(error, CronSimError) else "a field cannot be read"
        raise InvalidArgument(
            f"schedule is no cron expression of five fields, or six with the seconds first: {why} "
            f"(schedule={shown!r})."
        ) from error
    _check_steps(expression)
    cron = Cron(expression, time_zone)
    if cron.after(now) is None:
        raise InvalidArgument(f"schedule never comes: no day of the next 50 years is meant (schedule={shown!r}).")
    return cron


def _check_steps(expression: str) -> None:
    """Raises InvalidArgument for a step that is longer than its field: `*/90` minutes would tick every hour."""
    fields = expression.split()
    for (name, values), field in zip(_FIELDS[-len(fields) :], fields, strict=True):
        for part in field.split(","):
            _, _, step = part.partition("/")
            if step and int(step) > values:
                raise InvalidArgument(
                    f"schedule has a step of {step} in its {name} field, which has {values} values, so it "
                    f"would tick more often: use an interval instead (schedule={expression!r})."
                )


def check_interval(every: timedelta) -> timedelta:
    """Raises InvalidArgument."""
    if not MIN_INTERVAL <= every <= MAX_INTERVAL or every % _SECOND:
        raise InvalidArgument(
            f"interval must be whole seconds from {MIN_INTERVAL.total_seconds():g} s to {MAX_INTERVAL.days} days "
            f"(interval={every.total_seconds():g}s)."
        )
    return every


def check_zone(name: str) -> None:
    """Raises InvalidArgument unless it is the name of a zone in the IANA time zone database."""
    try:
        if len(name) > _MAX_ZONE or name == "localtime":
            raise ValueError(name)
        ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise InvalidArgument(
            f'timeZone must be a name of the IANA time zone database, such as "Europe/Berlin" '
            f"(timeZone={name[:_MAX_ZONE]!r})."
        ) from error


def _moment_of(shown: datetime, zone: ZoneInfo) -> datetime:
    """Returns when clocks show the time: for the first time, or when they are put forward past it."""
    moment = shown.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if moment.astimezone(zone).replace(tzinfo=None, fold=0) == shown:
        return moment
    before = shown.replace(tzinfo=zone, fold=1).astimezone(UTC)  # by the offset of afterwards: it is not yet so
    return _change_within(before, moment, zone)


def _end_of_repetition(moment: datetime, zone: ZoneInfo) -> datetime:
    """Returns what clocks showed when they were put back: no later time is shown again."""
    shown = moment.astimezone(zone).replace(tzinfo=None, fold=0)
    first = shown.replace(tzinfo=zone).astimezone(UTC)  # the same, shown the first time
    change = _change_within(first, moment.astimezone(UTC), zone)
    return (change - _SECOND).astimezone(zone).replace(tzinfo=None, fold=0)


def _change_within(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """The first second with the offset from UTC that there is at `after` and not yet at `before`."""
    offset = after.astimezone(zone).utcoffset()
    low, high = 0, int((after - before).total_seconds())
    before = after - timedelta(seconds=high)
    while high - low > 1:
        middle = (low + high) // 2
        if (before + timedelta(seconds=middle)).astimezone(zone).utcoffset() == offset:
            high = middle
        else:
            low = middle
    return before + timedelta(seconds=high)
