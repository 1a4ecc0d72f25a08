"""When something is told of: what one look finds, beside what was told of before."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from broker.core.context.event import Kind, Subject
from broker.features.events.event_detection import (
    QUIET,
    Comparison,
    Found,
    ReportedCondition,
    compare,
    event_json,
    event_message,
)

NOW = datetime(2026, 11, 23, 10, tzinfo=UTC)
LOOK = timedelta(seconds=5)


def subject(kind: Kind = "endpoint") -> Subject:
    return Subject("projects/p", kind, "projects/p/subscriptions/s")


def types(comparison: Comparison) -> list[str]:
    return [event.type for event in comparison.events]


def test_what_begins_is_told_once_and_so_is_its_end() -> None:
    found = [Found(subject(), "500 three times")]
    began = compare([], found, now=NOW)
    assert types(began) == ["pubsub.push.failing"]
    lasts = compare(began.holds, found, now=NOW + LOOK)
    assert types(lasts) == []
    ended = compare(lasts.holds, [], now=NOW + 2 * LOOK)
    assert (types(ended), ended.holds, ended.over) == (["pubsub.push.recovered"], [], [subject()])
    assert ended.events[0].since == NOW


def test_what_is_nearly_so_neither_begins_nor_ends() -> None:
    nearly = [Found(subject("quota"), "80 %", begins=False)]
    assert compare([], nearly, now=NOW) == Comparison([], [], [])
    reported = compare([], [Found(subject("quota"), "100 %")], now=NOW).holds
    assert types(compare(reported, nearly, now=NOW + LOOK)) == []


def test_an_event_says_since_when_it_has_been_so_and_has_the_fields_that_were_added() -> None:
    found = Found(subject(), "it fails", since=NOW - LOOK, fields={"endpointFailure": {"status": 400}})
    began = compare([], [found], now=NOW)
    assert event_json(began.events[0]) == {
        "type": "pubsub.push.failing",
        "project": "projects/p",
        "subject": "projects/p/subscriptions/s",
        "time": "2026-11-23T10:00:00.000Z",
        "since": "2026-11-23T09:59:55.000Z",
        "reason": "it fails",
        "endpointFailure": {"status": 400},
    }
    [ended] = compare(began.holds, [], now=NOW + LOOK).events
    assert ended.since == NOW - LOOK


def test_the_end_of_what_is_deleted_is_not_told() -> None:
    comparison = compare([ReportedCondition(subject(), NOW, NOW, 1, gone=True)], [], now=NOW + LOOK)
    assert (types(comparison), comparison.over) == ([], [subject()])


def test_dead_letters_are_told_of_at_the_first_and_at_each_power_of_ten_until_it_is_quiet() -> None:
    dead_letters, reported, now, seen = (
        subject("deadLetters"),
        list[ReportedCondition](),
        NOW,
        list[tuple[str, int]](),
    )
    for more in (1, 0, 8, 1, 0, 50, 40, 400):
        comparison = compare(reported, [Found(dead_letters, "nacked", more)] if more else [], now=now)
        seen += [(event.type, event.amount) for event in comparison.events]
        reported, now = comparison.holds or reported, now + LOOK
    assert seen == [
        ("pubsub.deadLetters.first", 1),
        ("pubsub.deadLetters.growing", 10),
        ("pubsub.deadLetters.growing", 100),
    ]
    assert compare(reported, [], now=now + QUIET).over == [dead_letters]


@given(st.lists(st.booleans(), max_size=50))
def test_beginnings_and_ends_take_turns_however_often_it_is_looked(finds: list[bool]) -> None:
    reported, seen = list[ReportedCondition](), list[str]()
    for number, found in enumerate([*finds, False]):
        comparison = compare(reported, [Found(subject(), "why")] if found else [], now=NOW + number * LOOK)
        reported = comparison.holds
        seen += types(comparison)
        assert len(comparison.events) <= 1
    assert seen == ["pubsub.push.failing", "pubsub.push.recovered"] * (len(seen) // 2)
    assert bool(seen) == any(finds)


def test_an_event_is_a_cloud_event() -> None:
    [event] = compare([], [Found(subject(), "500 three times")], now=NOW).events
    message = event_message(7, event_json(event))
    assert message.attributes == {
        "ce-specversion": "1.0",
        "ce-id": "7",
        "ce-type": "pubsub.push.failing",
        "ce-source": "projects/p",
        "ce-subject": "projects/p/subscriptions/s",
        "ce-time": "2026-11-23T10:00:00.000Z",
        "Content-Type": "application/json",
    }
    assert b'"reason": "500 three times"' in message.data
