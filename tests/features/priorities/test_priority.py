"""Levels of urgency: what a message says, and whose turn is next."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from broker.core.claiming.transaction.request import More, Quiet
from broker.features.priorities.claim_levels import Levels
from broker.features.priorities.priority import level_of, levels_of
from broker.model.errors import InvalidArgument
from broker.model.message import NewMessage
from broker.model.priorities import MAX_LEVELS, Priorities, check_priorities

THREE = Priorities(3)


def said(*levels: str | None, key: str = "") -> list[NewMessage | None]:
    return [
        NewMessage(attributes={} if each is None else {"broker-priority": each}, ordering_key=key)
        for each in levels
    ]


def test_what_says_nothing_is_the_least_urgent() -> None:
    assert levels_of(said(None, "1", "0", "2"), THREE) == [2, 1, 0, 2]
    assert levels_of([*said("0"), None], THREE) == [0, 2]
    assert levels_of(said(None, "2"), THREE) is None


@pytest.mark.parametrize("given", ["", "3", "9", "10", "-1", "+1", "01", " 1", "1 ", "x", "²", "1" * 5000])
def test_what_is_no_level_is_refused(given: str) -> None:
    with pytest.raises(InvalidArgument, match=r"messages\[1\]\.attributes\.broker-priority") as refused:
        levels_of(said("0", given), THREE)
    assert repr(given[:100]) in str(refused.value)
    assert level_of({"broker-priority": given}, "", THREE) is None  # where nothing can be refused


def test_a_message_with_an_ordering_key_has_none() -> None:
    with pytest.raises(InvalidArgument, match=r"messages\[0\] has an ordering key"):
        levels_of(said("1", key="k"), THREE)
    assert level_of({"broker-priority": "1"}, "k", THREE) is None
    assert level_of({"broker-priority": "1"}, "", None) is None
    assert level_of({"broker-priority": "1"}, "", THREE) == 1


def test_what_no_topic_can_have_is_refused_by_field_and_value() -> None:
    day = timedelta(days=1)
    for good in (THREE, replace(THREE, age=day), replace(THREE, weights=(1, 1, 1000))):
        check_priorities(good)
    for bad, where in (
        (Priorities(1), "priorities'"),
        (Priorities(11), "priorities'"),
        (replace(THREE, age=timedelta(0)), "priorities.age'"),
        (replace(THREE, age=32 * day), "priorities.age'"),
        (replace(THREE, weights=(1, 2)), "priorities.weights'"),
        (replace(THREE, weights=(1, 2, 0)), "priorities.weights'"),
        (replace(THREE, age=day, weights=(1, 2, 3)), "priorities.weights'"),
    ):
        with pytest.raises(InvalidArgument) as refused:
            check_priorities(bad)
        assert f"extensions.{where}" in str(refused.value)


def taken(levels: Levels, there: dict[int, int], priorities: Priorities, count: int) -> list[int]:
    """The levels of so many messages that are taken one by one; `there`: how many there are of each."""
    order = []
    for _ in range(count):
        level = min((each for each in there if there[each]), key=lambda each: levels.rank(each, priorities))
        there[level] -= 1
        order.append(level)
        levels.took(level, 1, More() if there[level] else Quiet(), priorities)
    return order


def test_without_weights_the_most_urgent_is_next() -> None:
    assert taken(Levels(), {0: 2, 1: 1, MAX_LEVELS: 2}, THREE, 5) == [0, 0, 1, MAX_LEVELS, MAX_LEVELS]


def test_levels_have_what_their_weights_say() -> None:
    weighed, many = replace(THREE, weights=(5, 2, 1)), {0: 1000, 1: 1000, MAX_LEVELS: 1000}
    order = taken(Levels(), many, weighed, 80)
    assert [order.count(level) for level in many] == [50, 20, 10]


def test_a_level_that_was_empty_is_owed_nothing() -> None:
    levels, weighed = Levels(), Priorities(2, weights=(1, 1))
    assert taken(levels, {0: 1, MAX_LEVELS: 200}, weighed, 101).count(0) == 1
    order = taken(levels, {0: 100, MAX_LEVELS: 100}, weighed, 100)
    assert 48 <= order.count(0) <= 52


def test_what_has_waited_too_long_takes_turns_with_what_is_more_urgent() -> None:
    age, now = timedelta(minutes=1), datetime(2027, 1, 1, tzinfo=UTC)
    levels, aged = Levels(), replace(THREE, age=age)
    there = {0: 100, 1: 100, MAX_LEVELS: 100}
    order = []
    for _ in range(20):
        for shard_id, level in ((10, 1), (11, MAX_LEVELS)):
            old_at = levels.old_at(shard_id, level, aged, now)
            if old_at is not None and old_at <= now:
                levels.waits(
                    shard_id, level, now - timedelta(seconds=90 if level == 1 else 30), timedelta(minutes=1), now
                )
        order += taken(levels, there, aged, 1)
    assert [order.count(level) for level in there] == [10, 10, 0]
    assert levels.old_at(11, MAX_LEVELS, aged, now) == now + timedelta(seconds=30)


def test_what_was_noted_of_an_age_counts_no_more_once_the_topic_has_none() -> None:
    age, now = timedelta(minutes=1), datetime(2027, 1, 1, tzinfo=UTC)
    levels, aged = Levels(), replace(THREE, age=age)
    taken(levels, {0: 1}, aged, 1)
    levels.waits(11, MAX_LEVELS, now - age, age, now)
    assert min((0, MAX_LEVELS), key=lambda each: levels.rank(each, aged)) == MAX_LEVELS
    assert min((0, MAX_LEVELS), key=lambda each: levels.rank(each, THREE)) == 0


def test_nor_does_what_each_has_had_once_it_has_no_weights() -> None:
    levels, weighed = Levels(), replace(THREE, weights=(1, 1, 1))
    taken(levels, {0: 2}, weighed, 1)
    assert min((0, MAX_LEVELS), key=lambda each: levels.rank(each, weighed)) == MAX_LEVELS
    assert min((0, MAX_LEVELS), key=lambda each: levels.rank(each, THREE)) == 0


def test_what_is_not_old_has_no_turn_before_what_is_more_urgent() -> None:
    age, now = timedelta(minutes=1), datetime(2027, 1, 1, tzinfo=UTC)
    levels, aged, there = Levels(), replace(THREE, age=age), {0: 100, 1: 100, MAX_LEVELS: 100}
    order = []
    for _ in range(20):
        levels.waits(11, MAX_LEVELS, now - age, age, now)
        order += taken(levels, there, aged, 1)
    assert [order.count(level) for level in there] == [10, 0, 10]
    there[0] = 0
    order = []
    for _ in range(20):
        levels.waits(11, MAX_LEVELS, now - age, age, now)
        order += taken(levels, there, aged, 1)
    assert [order.count(level) for level in there] == [0, 10, 10]
