"""A topic's extensions, as JSON in its message: Google's Topic has no field for them."""

from typing import Any

import msgspec

from broker.domain.deduplication import Deduplication, check_window
from broker.domain.durations import format_duration, parse_duration
from broker.domain.errors import InvalidArgument
from broker.domain.priority import Priorities
from broker.domain.topic_extensions import NO_EXTENSIONS, TopicExtensions
from broker.front.resources.carried import carried, carry


class _Deduplication(msgspec.Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    window: str
    content: bool = False


class _Priorities(msgspec.Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    levels: int
    age: str | None = None
    weights: list[int] = []


class _Body(msgspec.Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    delay: bool = False
    shards: int | None = None
    deduplication: _Deduplication | None = None
    priorities: int | _Priorities | None = None
    expiry: bool = False


_decode = msgspec.json.Decoder(_Body).decode


def extensions_from(message: Any) -> TopicExtensions:
    """Raises InvalidArgument that names the field."""
    said = carried(message)
    if said is None:
        return NO_EXTENSIONS
    try:
        body = _decode(said)
    except msgspec.ValidationError as error:
        why, _, at = str(error).partition(" - at `$")
        raise InvalidArgument(f"Invalid value at 'extensions{at.rstrip('`')}': {why}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"Invalid value at 'extensions': {error}.") from None
    return TopicExtensions(
        delay=body.delay,
        shards=body.shards,
        deduplication=_deduplication_from(body.deduplication),
        priorities=_priorities_from(body.priorities),
        expiry=body.expiry,
    )


def put_extensions(message: Any, extensions: TopicExtensions) -> None:
    """Nothing, if none is switched on."""
    if extensions != NO_EXTENSIONS:
        body = _Body(
            delay=extensions.delay,
            shards=extensions.shards,
            deduplication=_deduplication_body(extensions.deduplication),
            priorities=_priorities_body(extensions.priorities),
            expiry=extensions.expiry,
        )
        carry(message, msgspec.json.encode(body))


def _deduplication_from(body: _Deduplication | None) -> Deduplication | None:
    if body is None:
        return None
    window = parse_duration(body.window[:100], "extensions.deduplication.window")
    return Deduplication(check_window(window), body.content)


def _deduplication_body(deduplication: Deduplication | None) -> _Deduplication | None:
    if deduplication is None:
        return None
    return _Deduplication(format_duration(deduplication.window), deduplication.content)


def _priorities_from(body: int | _Priorities | None) -> Priorities | None:
    if body is None or isinstance(body, int):
        return None if body is None else Priorities(body)
    age = None if body.age is None else parse_duration(body.age[:100], "extensions.priorities.age")
    return Priorities(body.levels, age, tuple(body.weights))


def _priorities_body(priorities: Priorities | None) -> int | _Priorities | None:
    """A number, if that is all that there is to say."""
    if priorities is None:
        return None
    if priorities == Priorities(priorities.levels):
        return priorities.levels
    age = None if priorities.age is None else format_duration(priorities.age)
    return _Priorities(priorities.levels, age, list(priorities.weights))
