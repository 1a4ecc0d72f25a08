"""Durations with nanoseconds: read, printed and compared exactly."""

import copy
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.api.google.times import from_timedelta, to_timedelta
from broker.model.durations import Duration, format_duration, parse_duration, parse_exact_duration

NANOSECONDS = st.integers(-315_576_000_000 * 10**9, 315_576_000_000 * 10**9)


def _duration(nanoseconds: int) -> Duration:
    sign = -1 if nanoseconds < 0 else 1
    microseconds, rest = divmod(abs(nanoseconds), 1000)
    return Duration(microseconds=sign * microseconds, nanoseconds=sign * rest)


@given(NANOSECONDS)
def test_a_duration_is_the_same_in_text_and_as_a_message(nanoseconds: int) -> None:
    duration = _duration(nanoseconds)
    text = format_duration(duration)
    assert parse_exact_duration(text, "field") == duration
    assert from_timedelta(duration).ToJsonString() == text
    assert to_timedelta(from_timedelta(duration), "field") == duration
    assert copy.deepcopy(duration) == duration
    assert parse_duration(text, "field") == duration.microseconds_alone


@given(NANOSECONDS, NANOSECONDS)
def test_durations_are_ordered_by_their_nanoseconds(one: int, other: int) -> None:
    first, second = _duration(one), _duration(other)
    assert [first < second, first <= second, first == second] == [one < other, one <= other, one == other]
    assert [first > second, first >= second, first != second] == [one > other, one >= other, one != other]


@pytest.mark.parametrize("nanoseconds", [1, 999])
def test_a_duration_is_longer_than_the_timedelta_that_it_has_more_than(nanoseconds: int) -> None:
    limit = timedelta(days=31)
    longer = Duration(microseconds=limit // timedelta(microseconds=1), nanoseconds=nanoseconds)
    assert limit < longer
    assert not longer <= limit
    assert limit != longer
    assert max(limit, longer) is longer
