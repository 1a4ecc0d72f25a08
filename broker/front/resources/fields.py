"""Fields that Google's messages and the dataclasses of the domain declare under the same name in JSON.

They are numbers, texts, maps, durations, and messages of such fields.  All others are mapped by hand.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING
from datetime import timedelta
from functools import cache
from typing import Any, NamedTuple, TypeVar

from google.protobuf.descriptor import Descriptor

from broker.domain.api_json import Field, fields_of, has_fields
from broker.front.resources.times import from_timedelta, to_timedelta

T = TypeVar("T")


class _Mapped(NamedTuple):
    field: Field
    proto_name: str
    has_presence: bool
    is_map: bool


@cache
def mapped_fields(kind: Any, descriptor: Descriptor) -> Mapping[str, _Mapped]:
    """Returns the fields of a dataclass that a message has, too, by their names in the dataclass."""
    in_json = {field.json_name: field for field in descriptor.fields}
    found = ((field, in_json.get(field.json_name)) for field in fields_of(kind).values())
    return {
        field.name: _Mapped(field, said.name, said.has_presence, field.type is Mapping)
        for field, said in found
        if said is not None
    }


def read_message(kind: Any, message: Any, *, without: Collection[str] = (), where: str = "") -> dict[str, Any]:
    """Returns the fields of a dataclass that a message sets, by their names, except those `without`.

    `where`: the path to the message in the request, with a dot, for errors.  Raises InvalidArgument for a duration
    that is none.
    """
    found: dict[str, Any] = {}
    for name, (field, proto_name, has_presence, is_map) in mapped_fields(kind, message.DESCRIPTOR).items():
        if name in without or (has_presence and not message.HasField(proto_name)):
            continue
        value = getattr(message, proto_name)
        if is_map:
            found[name] = dict(value)
        elif field.type is timedelta:
            found[name] = to_timedelta(value, f"{where}{field.json_name}")
        elif has_fields(field.type):
            found[name] = from_message(field.type, value, f"{where}{field.json_name}.")
        elif value or field.default is MISSING:  # an empty one is absent
            found[name] = value
    return found


def from_message(kind: Callable[..., T], message: Any, where: str = "") -> T:
    """Returns a dataclass from a message, as read_message reads it."""
    return kind(**read_message(kind, message, where=where))


def put_fields(message: Any, value: Any, *, without: Collection[str] = ()) -> None:
    """Sets the fields of a message that a dataclass has, except those `without`; None is left out."""
    kind: Any = type(value)
    for name, mapped in mapped_fields(kind, message.DESCRIPTOR).items():
        item = getattr(value, name)
        if item is None or name in without:
            continue
        if mapped.is_map:
            getattr(message, mapped.proto_name).update(item)
        elif isinstance(item, timedelta):
            getattr(message, mapped.proto_name).CopyFrom(from_timedelta(item))
        elif has_fields(mapped.field.type):
            part = getattr(message, mapped.proto_name)
            part.SetInParent()
            put_fields(part, item)
        else:
            setattr(message, mapped.proto_name, item)
