"""Values of the domain as plain data: dictionaries, lists, texts and numbers.

A dataclass has one mapping of its fields, whatever it is written for.  JSON of the API and JSON in the database
differ in their Form.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import timedelta
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from broker.domain.durations import format_duration, parse_duration

T = TypeVar("T")


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Form:
    """How values are written.

    `name_of`: of a field.  `read_duration(value, path)` may raise InvalidArgument that names the path.  If
    `omits_defaults`, fields that have their default are left out, except for the types that are written `in_full`.
    """

    name_of: Callable[[str], str]
    write_duration: Callable[[timedelta], object]
    read_duration: Callable[[Any, str], timedelta]
    omits_defaults: bool
    in_full: Collection[type] = ()


class _Field(NamedTuple):
    name: str
    said: str  # its name in the form
    kind: Any  # the type of its values, besides None
    default: Any


@cache
def _fields(kind: Any, form: Form) -> list[_Field]:
    hints = get_type_hints(kind)
    found = []
    for field in fields(kind):
        wanted = hints[field.name]
        if isinstance(wanted, UnionType):
            wanted = next((each for each in get_args(wanted) if each is not NoneType), wanted)
        found.append(_Field(field.name, form.name_of(field.name), get_origin(wanted) or wanted, field.default))
    return found


def to_plain(value: Any, form: Form) -> Any:
    """A value in this form."""
    if isinstance(value, timedelta):
        return form.write_duration(value)
    if isinstance(value, tuple):
        return [to_plain(item, form) for item in value]
    if not is_dataclass(value):
        return value
    omits = form.omits_defaults and type(value) not in form.in_full
    written = {}
    for name, said, _, default in _fields(value.__class__, form):
        item = getattr(value, name)
        if not omits or default is MISSING or item != default:
            written[said] = to_plain(item, form)
    return written


def from_plain(kind: Callable[..., T], given: Mapping[str, Any], form: Form, path: str = "") -> T:
    """Returns a dataclass from what `to_plain` or a caller wrote; absent fields and None mean the default.

    `path`: to the value, for errors.  Raises what `read_duration` raises.
    """
    values: dict[str, Any] = {}
    for name, said, wanted, _ in _fields(kind, form):
        item = given.get(said)
        if item is None:
            continue
        if wanted is timedelta:
            values[name] = form.read_duration(item, f"{path}.{name}")
        elif hasattr(wanted, "__dataclass_fields__"):
            values[name] = from_plain(wanted, item, form, f"{path}.{said}")
        elif wanted is tuple or (isinstance(wanted, type) and issubclass(wanted, Enum)):
            values[name] = wanted(item)
        else:
            values[name] = item
    return kind(**values)


def camel(name: str) -> str:
    """A field in the spelling of protobuf's JSON."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def in_api(*, in_full: Collection[type] = (), renamed: Mapping[str, str] | None = None) -> Form:
    """JSON as the API reads and prints it.  `renamed`: fields with another name there than their own."""
    names = renamed or {}
    return Form(
        name_of=lambda name: names.get(name) or camel(name),
        write_duration=format_duration,
        read_duration=parse_duration,
        omits_defaults=True,
        in_full=in_full,
    )


# In the database: durations are seconds, and nothing is left out.
STORED = Form(
    name_of=str,
    write_duration=timedelta.total_seconds,
    read_duration=lambda seconds, _: timedelta(seconds=seconds),
    omits_defaults=False,
)
