"""Each time that cron names ticks exactly once, whatever is done to clocks (J2)."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.features.schedules.ticks import Cron, Interval, check_cron, check_interval, next_tick
from broker.model.errors import InvalidArgument

NOW = datetime(2026, 11, 24, 3, tzinfo=UTC)
ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Tokyo", "UTC", "Africa/Casablanca"]


def ticks(expression: str, zone: str, first: datetime, last: datetime) -> list[datetime]:
    """From `first` to `last`, which are of UTC or of the zone."""
    cron, found = Cron(expression, zone), []
    tick = cron.after(first.astimezone(UTC) - timedelta(microseconds=1))
    while tick is not None and tick <= last:
        found.append(tick)
        tick = cron.after(tick)
    return found


def shown(found: list[datetime], zone: str) -> list[str]:
    return [tick.astimezone(ZoneInfo(zone)).strftime("%H:%M:%S%z") for tick in found]


@given(
    zone=st.sampled_from(ZONES),
    first=st.datetimes(datetime(2024, 1, 1), datetime(2027, 12, 1)),
    minute=st.sampled_from(["0", "*/15", "7", "30", "5,35"]),
    hour=st.sampled_from(["*", "1", "2", "3", "*/2", "1-3"]),
)
@example("Europe/Berlin", datetime(2026, 10, 24, 20), "*/15", "*")
@example("Europe/Berlin", datetime(2026, 3, 28, 20), "*/15", "2")
@example("Australia/Lord_Howe", datetime(2026, 4, 4, 10), "*/15", "*")
@example("Australia/Lord_Howe", datetime(2026, 10, 3, 10), "7", "2")
@example("America/New_York", datetime(2026, 11, 1, 0), "30", "1")
def test_each_time_that_exists_ticks_exactly_once(zone: str, first: datetime, minute: str, hour: str) -> None:
    begin = first.replace(tzinfo=UTC, second=0, microsecond=0)
    end = begin + timedelta(hours=30)
    found = ticks(f"{minute} {hour} * * *", zone, begin, end)
    assert found == sorted(set(found))

    # What clocks show each minute, by conversion from UTC, without the arithmetic of the code.
    minutes = [begin + timedelta(minutes=n) for n in range(30 * 60 + 1)]
    walls = [moment.astimezone(ZoneInfo(zone)) for moment in minutes]
    expected = []
    for moment, before, wall in zip(minutes[1:], walls, walls[1:], strict=False):
        span = [wall.replace(tzinfo=None)]
        while span[-1] - before.replace(tzinfo=None) > timedelta(minutes=1):  # clocks were put forward
            span.append(span[-1] - timedelta(minutes=1))
        if wall.fold == 0 and any(_named(time, minute, hour) for time in span):
            expected.append(moment)
    assert [tick for tick in found if tick > begin] == expected


def _named(wall: datetime, minute: str, hour: str) -> bool:
    return wall.minute in _values(minute, 60) and wall.hour in _values(hour, 24)


def _values(field: str, most: int) -> set[int]:
    if field.startswith("*"):
        return set(range(0, most, int(field.partition("/")[2] or 1)))
    low, _, high = field.partition("-")
    return set(range(int(low), int(high) + 1)) if high else {int(value) for value in field.split(",")}


@pytest.mark.parametrize(
    ("expression", "zone", "day", "expected"),
    [
        ("30 2 * * *", "Europe/Berlin", (2026, 3, 29), ["03:00:00+0200"]),  # 02:30 is skipped
        ("*/20 2 * * *", "Europe/Berlin", (2026, 3, 29), ["03:00:00+0200"]),  # together
        ("30 2 * * *", "Europe/Berlin", (2026, 10, 25), ["02:30:00+0200"]),  # it comes twice
        ("30 1 * * *", "America/New_York", (2026, 11, 1), ["01:30:00-0400"]),
        ("15 2 * * *", "Australia/Lord_Howe", (2026, 10, 4), ["02:30:00+1100"]),  # half an hour
        ("45 1 * * *", "Australia/Lord_Howe", (2026, 4, 5), ["01:45:00+1100"]),
        ("10,20 30 2 * * *", "Europe/Berlin", (2026, 10, 25), ["02:30:10+0200", "02:30:20+0200"]),
        ("10 30 2 * * *", "Europe/Berlin", (2026, 3, 29), ["03:00:00+0200"]),
        ("30 2 * * *", "Asia/Tokyo", (2026, 3, 29), ["02:30:00+0900"]),
    ],
)
def test_days_on_which_clocks_change(
    expression: str, zone: str, day: tuple[int, int, int], expected: list[str]
) -> None:
    midnight = datetime(*day, tzinfo=ZoneInfo(zone))
    found = ticks(expression, zone, midnight, datetime(*day, 23, 59, 59, tzinfo=ZoneInfo(zone)))
    assert shown(found, zone) == expected


def test_a_search_may_begin_at_any_moment_of_an_hour_that_repeats() -> None:
    after_it = datetime(2026, 10, 25, 2, tzinfo=UTC)  # 03:00 in Berlin
    for second in range(0, 3600, 61):
        moment = datetime(2026, 10, 25, 1, tzinfo=UTC) + timedelta(seconds=second)  # 02:… the second time
        assert Cron("* * * * * *", "Europe/Berlin").after(moment) == after_it


@given(
    every=st.integers(1, 100_000),
    anchor=st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)),
    later=st.timedeltas(timedelta(0), timedelta(days=900)),
)
def test_intervals_are_counted_from_their_anchor(every: int, anchor: datetime, later: timedelta) -> None:
    begin = anchor.replace(tzinfo=UTC)
    tick = Interval(timedelta(seconds=every), begin).after(begin + later)
    assert tick is not None
    assert timedelta(0) < tick - (begin + later) <= timedelta(seconds=every)
    assert (tick - begin) % timedelta(seconds=every) == timedelta(0)


def test_start_and_end_may_be_ticks() -> None:
    cron = Cron("0 * * * *")
    hour = timedelta(hours=1)
    assert next_tick(cron, NOW - 9 * hour, start=NOW, end=NOW) == NOW
    assert next_tick(cron, NOW, start=NOW, end=NOW + hour) == NOW + hour
    assert next_tick(cron, NOW, start=NOW, end=NOW + hour / 2) is None


@pytest.mark.parametrize(
    "expression",
    [
        *("", "* * * *", "* * * * * * *", "60 * * * *", "* 24 * * *", "a * * * *", "*/0 * * * *", "@daily"),
        *("5-1 * * * *", "0 0 30 2 *", "0 0 0 * *", "0 0 * * MON#2/2", "0 0 * * 1,2L/2", "٣ * * * *"),
        *("0 0 * * L", "9999999999999 * * * *", "*/1/ * * * *", "0 0 * * ²L", "0 0 31 2,4 *", "0 0 */29 2 FRI#5"),
        *("\0 * * * *", "1," * 150 + "1 * * * *"),
    ],
)
def test_nonsense_is_refused_by_name(expression: str) -> None:
    with pytest.raises(InvalidArgument, match="schedule"):
        check_cron(expression, "UTC", NOW)


@pytest.mark.parametrize(
    ("expression", "field"),
    [
        *(("*/90 * * * *", "minute"), ("0,5/61 * * * *", "minute"), ("*/61 * * * * *", "second")),
        *(("0 */25 * * *", "hour"), ("0 0 */32 * *", "day-of-month"), ("0 0 1 1-6/13 *", "month")),
        *(("0 0 * * */8", "day-of-week"), (f"*/{'9' * 100} * * * *", "minute")),
    ],
)
def test_a_step_that_is_longer_than_its_field_is_refused(expression: str, field: str) -> None:
    """It would tick once an hour, not every 90 minutes: https://github.com/robfig/cron/issues/543."""
    with pytest.raises(InvalidArgument, match=f"in its {field} field"):
        check_cron(expression, "UTC", NOW)


@pytest.mark.parametrize(
    "expression", ["*/60 * * * *", "0 */24 * * *", "0 0 */31 * *", "0 0 1 */12 *", "0 0 * * */7"]
)
def test_a_step_as_long_as_its_field_means_the_next_unit(expression: str) -> None:
    assert check_cron(expression, "UTC", NOW).after(NOW) is not None


@pytest.mark.parametrize("zone", ["", "Mars/Base", "../etc/passwd", "/etc/localtime", "Europe", "a" * 500, "\0"])
def test_zones_that_are_none(zone: str) -> None:
    with pytest.raises(InvalidArgument, match="timeZone"):
        check_cron("* * * * *", zone, NOW)


@pytest.mark.parametrize("seconds", [0, -1, 0.5, 1.5, 367 * 86_400, 1e9])
def test_intervals_have_bounds(seconds: float) -> None:
    with pytest.raises(InvalidArgument, match="interval"):
        check_interval(timedelta(seconds=seconds))
