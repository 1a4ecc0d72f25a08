"""The fields of topics and subscriptions in Google's messages.

Most are *mapped*: Google's message and the dataclass of the domain declare them under the same JSON name.  Mapped
fields are numbers, strings, maps, durations, and messages of such fields; the others are converted by hand.  *Kept*
fields (model/kept.py) are stored and returned without effect.  They are stored in protobuf's JSON, normalised with
their types, oneofs and enums, however a REST client has spelled them.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import MISSING
from datetime import timedelta
from functools import cache
from typing import Any, NamedTuple, TypeVar

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor

from broker.api.google.times import from_timedelta, to_timedelta
from broker.api.google.updates import OUTPUT_ONLY
from broker.model.api_json import Field, camel, fields_of, has_fields
from broker.model.errors import InvalidArgument

T = TypeVar("T")


def read_resource(
    kind: Any,
    message: Any,
    *,
    kept: Collection[str],
    unsupported: Mapping[str, str],
    without: Collection[str] = (),
) -> dict[str, Any]:
    """Returns the mapped fields of a resource that its message sets, except those `without`, and the `kept` ones.

    Raises InvalidArgument for a field that is `unsupported`, with its reason, and as `read_message`.
    """
    refuse_unsupported(message, unsupported)
    return {**read_message(kind, message, without=without), "kept": _read_kept(message, kept)}


def put_resource(message: Any, resource: Any, *, without: Collection[str] = ()) -> None:
    """Sets the mapped fields of a resource's message, except those `without`, and its kept fields."""
    put_fields(message, resource, without=without)
    for name, value in resource.kept.items():
        with suppress(json_format.ParseError):  # values that this version of protobuf refuses are left out
            json_format.ParseDict({name: value}, message, ignore_unknown_fields=True)


def refuse_unsupported(message: Any, reasons: Mapping[str, str]) -> None:
    """Raises InvalidArgument if a field that is not its default has a reason to be refused."""
    for field, _ in message.ListFields():
        if field.name in reasons:
            raise InvalidArgument(f"The field {camel(field.name)} is not supported: {reasons[field.name]}.")


# --- mapped fields ------------------------------------------------------------------------------------------------


class _Mapped(NamedTuple):
    field: Field
    proto_name: str
    has_presence: bool
    is_map: bool
    has_fields: bool


@cache
def mapped_fields(kind: Any, descriptor: Descriptor) -> Mapping[str, _Mapped]:
    """Returns the fields of a dataclass that a message has, too, by their names in the dataclass."""
    in_json = {field.json_name: field for field in descriptor.fields}
    found = ((field, in_json.get(field.json_name)) for field in fields_of(kind).values())
    return {
        field.name: _Mapped(
            field, said.name, said.has_presence, is_map=field.type is Mapping, has_fields=has_fields(field.type)
        )
        for field, said in found
        if said is not None
    }


def read_message(kind: Any, message: Any, *, without: Collection[str] = (), where: str = "") -> dict[str, Any]:
    """Returns the fields of a dataclass that a message sets, by their names, except those `without`.

    `where`: the path to the message in the request, with a dot, for errors.  Raises InvalidArgument for a duration
    that is none.
    """
    found: dict[str, Any] = {}
    for name, mapped in mapped_fields(kind, message.DESCRIPTOR).items():
        field, proto_name = mapped.field, mapped.proto_name
        if name in without or (mapped.has_presence and not message.HasField(proto_name)):
            continue
        value = getattr(message, proto_name)
        if mapped.is_map:
            found[name] = dict(value)
        elif field.type is timedelta:
            found[name] = to_timedelta(value, f"{where}{field.json_name}")
        elif mapped.has_fields:
            found[name] = from_message(field.type, value, f"{where}{field.json_name}.")
        elif value or field.default is MISSING:  # an empty value is left out
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
        elif mapped.has_fields:
            part = getattr(message, mapped.proto_name)
            part.SetInParent()
            put_fields(part, item)
        else:
            setattr(message, mapped.proto_name, item)


# --- kept fields --------------------------------------------------------------------------------------------------


def _read_kept(message: Any, fields: Collection[str]) -> dict[str, Any]:
    """Returns those of the `fields` that a message has, by their JSON names, without what is output only.

    An empty field counts as absent.
    """
    kept = {}
    for field, value in message.ListFields():
        if field.name in fields:
            given = json_format.MessageToDict(_writable(value)) if field.message_type is not None else value
            if given:
                kept[field.json_name] = given
    return kept


def _writable(message: Any) -> Any:
    """A copy without what is output only, in it and in the messages right below."""
    copy = type(message)()
    copy.CopyFrom(message)
    for field, value in copy.ListFields():
        if field.name == OUTPUT_ONLY:
            copy.ClearField(OUTPUT_ONLY)
        elif field.message_type is not None and any(f.name == OUTPUT_ONLY for f in field.message_type.fields):
            value.ClearField(OUTPUT_ONLY)
    return copy
