"""Times as the API prints them: many at once are each as one is alone."""

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import example, given
from hypothesis import strategies as st

from broker.model.timestamps import format_timestamp, timestamp_formatter

_ZONES = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30)), timezone(timedelta(hours=-11))])
_SECOND = datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC)


@given(
    starts=st.lists(st.datetimes(datetime(1970, 1, 1), datetime(2999, 1, 1), timezones=_ZONES), min_size=1),
    steps=st.lists(st.integers(-1_500_000, 1_500_000)),
)
@example(starts=[_SECOND], steps=[999_999, 1, -1, -999_999, -1])
def test_many_times_are_printed_as_each_is_alone(starts: list[datetime], steps: list[int]) -> None:
    moments = list(starts)
    for microseconds in steps:
        moments.append(moments[-1] + timedelta(microseconds=microseconds))
    assert list(map(timestamp_formatter(), moments)) == [format_timestamp(moment) for moment in moments]
