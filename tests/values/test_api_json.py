"""Values of the domain in the API's JSON: a field is declared once."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, ClassVar

import msgspec
import pytest

from broker.model.api_json import ExactDuration, Int32, JsonName, body_type, from_json, to_json
from broker.model.durations import Duration
from broker.model.errors import InvalidArgument
from broker.model.push_config import PushOptions


class _Mode(StrEnum):
    ALL = "ALL"


@dataclass(frozen=True)
class _Inner:
    max_delay: timedelta = timedelta(seconds=10)
    most: Int32 = 3


@dataclass(frozen=True)
class _Whole:
    IN_FULL: ClassVar = True

    max_delay: timedelta = timedelta(seconds=10)
    most: Int32 = 3


@dataclass(frozen=True)
class _Levels:
    ALONE: ClassVar = "count"

    count: int
    weights: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Outer:
    inner: _Inner = _Inner()
    whole: _Whole | None = None
    levels: _Levels | None = None
    mode: _Mode | None = None
    is_urgent: bool = False
    own_name: Annotated[str, JsonName("anotherName")] = ""
    backoff: ExactDuration = timedelta(seconds=1)


WRITTEN = [
    (_Outer(), {}),
    (_Outer(inner=_Inner(most=7), mode=_Mode.ALL), {"inner": {"most": 7}, "mode": "ALL"}),
    (_Outer(inner=_Inner(timedelta(milliseconds=1500))), {"inner": {"maxDelay": "1.500s"}}),
    (_Outer(whole=_Whole()), {"whole": {"maxDelay": "10s", "most": 3}}),
    (_Outer(levels=_Levels(3)), {"levels": 3}),
    (_Outer(levels=_Levels(2, (3, 1))), {"levels": {"count": 2, "weights": [3, 1]}}),
    (_Outer(is_urgent=True, own_name="n"), {"isUrgent": True, "anotherName": "n"}),
    (_Outer(backoff=Duration(microseconds=5, nanoseconds=7)), {"backoff": "0.000005007s"}),
]


@pytest.mark.parametrize(("value", "expected"), WRITTEN)
def test_a_value_is_written_without_its_defaults_and_read_again(value: _Outer, expected: Any) -> None:
    assert to_json(value) == expected
    assert from_json(_Outer, expected) == value
    body = msgspec.json.decode(msgspec.json.encode(expected), type=body_type(_Outer))
    assert from_json(_Outer, msgspec.to_builtins(body)) == value


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"color": 1}, "Object contains unknown field `color`"),
        ({"levels": {}}, "Object missing required field `count` - at `$.levels`"),
        ({"levels": "3"}, "Expected `int | object | null`, got `str` - at `$.levels`"),
        ({"inner": {"most": 2**31}}, "Expected `int` <= 2147483647 - at `$.inner.most`"),
        ({"inner": {"maxDelay": 5}}, "Expected `str | null`, got `int` - at `$.inner.maxDelay`"),
        ({"mode": "SOME"}, "Invalid enum value 'SOME' - at `$.mode`"),
        ({"isUrgent": None}, "Expected `bool`, got `null` - at `$.isUrgent`"),
    ],
)
def test_a_body_is_refused_for_what_the_fields_do_not_declare(given: Any, why: str) -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.convert(given, body_type(_Outer))
    assert str(refused.value) == why


def test_only_some_durations_keep_their_nanoseconds() -> None:
    read = from_json(_Outer, {"inner": {"maxDelay": "1.000000001s"}, "backoff": "1.000000001s"})
    assert read == _Outer(_Inner(timedelta(seconds=1)), backoff=Duration(microseconds=1_000_000, nanoseconds=1))


def test_a_duration_that_cannot_be_read_is_named_by_its_path() -> None:
    given = {"digest": {"maxDelay": "soon"}}
    with pytest.raises(InvalidArgument, match=r"Invalid value at 'extensions\.push\.digest\.max_delay': 'soon'"):
        from_json(PushOptions, given, "extensions.push")
