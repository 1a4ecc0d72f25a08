"""Values of the domain as plain data: one mapping of the fields, whatever the form."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

import pytest

from broker.domain.errors import InvalidArgument
from broker.domain.plain import STORED, from_plain, in_api, to_plain
from broker.domain.priority import Priorities
from broker.domain.push_config import CircuitBreaker, Digest, PushOptions
from broker.domain.topic_extensions import TopicExtensions


class _Mode(StrEnum):
    ALL = "ALL"


@dataclass(frozen=True)
class _Inner:
    max_delay: timedelta = timedelta(seconds=10)
    most: int = 3


@dataclass(frozen=True)
class _Outer:
    inner: _Inner = _Inner()
    other_inner: _Inner | None = None
    mode: _Mode | None = None
    weights: tuple[int, ...] = ()


API = in_api()
VALUES = [
    _Outer(),
    _Outer(inner=_Inner(most=7), mode=_Mode.ALL),
    _Outer(other_inner=_Inner(timedelta(milliseconds=1500)), weights=(3, 1)),
]


@pytest.mark.parametrize("form", [API, STORED, in_api(in_full=(_Inner,))], ids=["API", "stored", "in full"])
@pytest.mark.parametrize("value", VALUES)
def test_what_is_written_is_read_again(value: _Outer, form: Any) -> None:
    assert from_plain(_Outer, to_plain(value, form), form) == value


def test_the_api_leaves_out_defaults_and_prints_durations_in_camel_case() -> None:
    assert to_plain(VALUES[0], API) == {}
    assert to_plain(VALUES[2], API) == {"otherInner": {"maxDelay": "1.500s"}, "weights": [3, 1]}
    in_full = in_api(in_full=(_Inner,), renamed={"other_inner": "second"})
    assert to_plain(VALUES[2], in_full) == {"second": {"maxDelay": "1.500s", "most": 3}, "weights": [3, 1]}


def test_the_database_has_all_fields_and_durations_in_seconds() -> None:
    inner = {"max_delay": 10.0, "most": 3}
    assert to_plain(VALUES[0], STORED) == {"inner": inner, "other_inner": None, "mode": None, "weights": []}


def test_a_duration_that_cannot_be_read_is_named_by_its_path() -> None:
    given = {"digest": {"maxDelay": "soon"}}
    with pytest.raises(InvalidArgument, match=r"Invalid value at 'extensions\.push\.digest\.max_delay': 'soon'"):
        from_plain(PushOptions, given, API, "extensions.push")


def test_every_extension_has_a_mapping() -> None:
    """Also one of a type that the mapping has not met before: it would not be read as it was written."""
    push = PushOptions(
        digest=Digest(max_messages=2), circuit_breaker=CircuitBreaker(failure_threshold=2), urgent=True
    )
    topic = TopicExtensions(delay=True, shards=3, priorities=Priorities(2, timedelta(seconds=1)), expiry=True)
    for value in (push, topic):
        for form in (API, STORED):
            assert from_plain(type(value), to_plain(value, form), form) == value
