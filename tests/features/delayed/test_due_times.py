"""When a message is to come, as its publisher says it (J1)."""

from datetime import UTC, datetime, timedelta

import pytest

from broker.features.delayed.delay import DELAY, DELIVER_AT, due_times
from broker.model.errors import InvalidArgument
from broker.model.message import NewMessage

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)


def due(**attributes: str) -> datetime | None:
    named = {{"at": DELIVER_AT, "delay": DELAY}.get(name, name): value for name, value in attributes.items()}
    times = due_times([NewMessage(attributes=named)], NOW)
    return None if times is None else times[0]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"delay": "10s"}, NOW + timedelta(seconds=10)),
        ({"delay": "0.25s"}, NOW + timedelta(milliseconds=250)),
        ({"delay": "2678400s"}, NOW + timedelta(days=31)),
        ({"at": "2026-11-23T13:00:00+01:00"}, None),
        ({"at": "2026-11-23T14:00:00+01:00"}, NOW + timedelta(hours=1)),
        ({"delay": "0s"}, None),
        ({"delay": "-5s"}, None),
        ({"delay": "-99999999999s"}, None),
        ({"at": "1999-01-01T00:00:00Z"}, None),
        ({"other": "10s"}, None),
        ({}, None),
    ],
)
def test_a_message_comes_at_its_time_or_at_once_if_that_has_passed(
    said: dict[str, str], expected: datetime | None
) -> None:
    assert due(**said) == expected


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ({"delay": "soon"}, ["messages[0].attributes.broker-delay", "'soon'"]),
        ({"delay": "1h"}, ["broker-delay", "'1h'"]),
        ({"delay": ""}, ["broker-delay", "''"]),
        ({"delay": "99999999999s"}, ["broker-delay", "99999999999s", "31 days"]),
        ({"delay": "2678401s"}, ["2678401s", "2026-12-24T12:00:00.000Z"]),
        ({"at": "2027-11-23T12:00:00Z"}, ["broker-deliver-at", "2027", "31 days"]),
        ({"at": "2026-11-24T12:00:00"}, ["broker-deliver-at", "2026-11-24T12:00:00"]),
        ({"at": "2026-13-01T00:00:00Z"}, ["broker-deliver-at"]),
        ({"at": "9" * 5000}, ["broker-deliver-at"]),
        ({"at": "2026-11-24T12:00:00Z", "delay": "5s"}, ["broker-deliver-at", "broker-delay", "'5s'"]),
    ],
)
def test_what_cannot_be_read_or_is_too_far_ahead_is_refused_by_name_and_value(
    said: dict[str, str], named: list[str]
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        due(**said)
    assert all(part in str(refused.value) for part in named), refused.value
    assert len(str(refused.value)) < 400


def test_of_a_request_each_message_has_its_own_time() -> None:
    messages = [NewMessage(attributes={"a": "b"}), None, NewMessage(attributes={DELAY: "1s"}), NewMessage()]
    assert due_times(messages, NOW) == [None, None, NOW + timedelta(seconds=1), None]
