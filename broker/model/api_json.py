"""Values of the domain in the API's JSON, which is also how the database stores them.

A dataclass declares a field once: its name, its type and its default.  Answers, stored values, the types of request
bodies and the format of declarations are derived from that.  A class may say more about its JSON by two variables:

* `IN_FULL = True`: fields that have their default are written, too.
* `ALONE = "field"`: this field stands for the whole value where all others have their defaults.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import timedelta
from enum import Enum
from functools import cache, partial
from types import GenericAlias, NoneType, UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from broker.model.durations import format_duration, parse_exact_duration

T = TypeVar("T")

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]


class JsonName(NamedTuple):
    """The annotation of a field whose name in JSON is not its own in camel case."""

    name: str


class _Exact(NamedTuple):
    """The annotation of a duration that keeps its nanoseconds."""


ExactDuration = Annotated[timedelta, _Exact()]


class Field(NamedTuple):
    """A field of a dataclass, as it is declared."""

    name: str
    json_name: str
    type: Any  # besides None; of a tuple, `tuple`
    item: Any  # the type of a tuple's items, or None
    default: Any  # MISSING: it has none
    is_exact: bool
    declared: Any  # the type with its bounds, besides None


@cache
def fields_of(kind: Any) -> Mapping[str, Field]:
    """Returns the fields of a dataclass by their names, without those that are computed from others."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: _field(field, hints[field.name]) for field in fields(kind) if field.init}


def _field(field: Any, hint: Any) -> Field:
    declared = _without_none(hint)
    notes = getattr(declared, "__metadata__", ())
    bare = _without_none(get_args(declared)[0]) if notes else declared
    names = [note.name for note in notes if isinstance(note, JsonName)]
    default = field.default if field.default_factory is MISSING else field.default_factory()
    origin = get_origin(bare)
    return Field(
        name=field.name,
        json_name=names[0] if names else camel(field.name),
        type=origin or bare,
        item=get_args(bare)[0] if origin is tuple else None,
        default=default,
        is_exact=any(isinstance(note, _Exact) for note in notes),
        declared=declared,
    )


def _without_none(hint: Any) -> Any:
    if get_origin(hint) not in (UnionType, Union):
        return hint
    return next(each for each in get_args(hint) if each is not NoneType)


def to_json(value: Any) -> Any:
    """Returns a value as JSON: durations as texts, without fields that have their default."""
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, tuple):
        return [to_json(item) for item in value]
    kind: Any = type(value)
    if not has_fields(kind):
        return value
    in_full = getattr(kind, "IN_FULL", False)
    written = {}
    for name, field in fields_of(kind).items():
        item = getattr(value, name)
        if in_full or item != field.default:
            written[field.json_name] = to_json(item)
    alone: str = getattr(kind, "ALONE", "")
    return written[alone] if written.keys() == {alone} else written


def from_json(kind: Callable[..., T], given: Any, path: str = "") -> T:
    """Returns a dataclass from its JSON; absent fields and null mean the default.

    `path`: to the value, for errors.  Raises InvalidArgument for a text that is no duration.
    """
    if not isinstance(given, dict):
        return kind(**{getattr(kind, "ALONE"): given})  # noqa: B009
    return kind(**read_fields(kind, given, path))


def read_fields(kind: Any, given: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Returns the values of the fields of a dataclass that its JSON has, by their names."""
    values = {}
    known = _readers(kind)
    for json_name, item in given.items():
        if item is not None and json_name in known:
            name, read = known[json_name]
            values[name] = item if read is None else read(item, path)
    return values


@cache
def _readers(kind: Any) -> Mapping[str, tuple[str, Callable[[Any, str], Any] | None]]:
    """Returns what reads the values of each field, by its name in JSON; None: they are as in JSON."""
    return {field.json_name: (field.name, _reader(field)) for field in fields_of(kind).values()}


def _reader(field: Field) -> Callable[[Any, str], Any] | None:
    kind = field.type
    if kind is timedelta:
        return partial(_read_duration, field)
    if has_fields(kind):
        return partial(_read_object, field)
    if kind is tuple or issubclass(kind, Enum):
        return lambda item, path: kind(item)
    return None


def _read_duration(field: Field, item: str, path: str) -> timedelta:
    exact = parse_exact_duration(item, f"{path}.{field.name}")
    return exact if field.is_exact and exact.nanoseconds else exact.microseconds_alone


def _read_object(field: Field, item: Any, path: str) -> Any:
    if item == {} and has_fields(type(field.default)):  # which cannot change
        return field.default
    return from_json(field.type, item, f"{path}.{field.json_name}")


@cache
def body_type(kind: Any) -> type[msgspec.Struct]:
    """Returns the type of a dataclass in a request's body: it refuses unknown fields, and values of other types."""
    declared = fields_of(kind).values()
    return msgspec.defstruct(
        f"{kind.__name__}Body",
        [_body_field(field) for field in declared],
        rename={field.name: field.json_name for field in declared},
        kw_only=True,
        forbid_unknown_fields=True,
    )


def _body_field(field: Field) -> Any:
    kind, said = field.type, field.declared
    if kind is timedelta:
        said = str
    elif kind is tuple:
        said = GenericAlias(list, field.item)
    elif has_fields(kind):
        alone = getattr(kind, "ALONE", "")
        said = fields_of(kind)[alone].declared | body_type(kind) if alone else body_type(kind)
    if field.default is MISSING:
        return field.name, said
    if field.default is None or kind in (int, timedelta) or has_fields(kind):
        return field.name, said | None, None
    return field.name, said, [] if kind is tuple else field.default


def has_fields(kind: Any) -> bool:
    """Whether values of a type are JSON objects with declared fields."""
    return is_dataclass(kind)


def camel(name: str) -> str:
    """Returns the name of a field in the spelling of protobuf's JSON."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))
