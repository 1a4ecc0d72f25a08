"""Converts Google's messages from and to JSON by protobuf's JSON mapping, for calls that are not hot.

It accepts what google.protobuf.json_format accepts, and what REST clients send beyond that (numbers and booleans in
quotes, an empty string for an absent duration).  An error names the field and quotes the value.
"""

import math
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import cache
from typing import Any

import msgspec
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from broker.api.google.passthrough import EXTENSION_FIELDS, passthrough, set_passthrough
from broker.api.google.passthrough import NAMES as PASSTHROUGH_NAMES
from broker.api.rest.codec.scalars import parse_duration, parse_timestamp
from broker.model.errors import InvalidArgument
from broker.model.field_mask import parse_field_mask

# Values of fields that exist in JSON, but not in Google's definition.
EXTENSION_VALUES = {("google.pubsub.v1.Schema", "type"): "JSON"}

_SHOWN = 200  # characters of a refused value
# ProtoJSON accepts an exponent in a quoted number, too.  [0-9], not \d: int() takes the digits of any script.
_QUOTED_NUMBER = re.compile(r"-?[0-9]{1,20}(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,2})?")
_BOOLS = {True: True, False: False, "true": True, "false": False, "1": True, "0": False}
_NUMBERS = ("NaN", "Infinity", "-Infinity")

_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1, "a whole number of 32 bits"),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1, "a whole number of 64 bits"),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1, "a whole number of 32 bits, not negative"),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1, "a whole number of 64 bits, not negative"),
}
_TEXTS_OF_NUMBERS = (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)
_WELL_KNOWN = "google.protobuf."
_TIMES = {"google.protobuf.Duration", "google.protobuf.Timestamp"}
_FLOATS = (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT)


def to_json(message: Any) -> dict[str, Any]:
    """A message in JSON: camelCase, defaults left out, enums by name, 64-bit numbers and durations as texts."""
    body: dict[str, Any] = {}
    for field, value in message.ListFields():
        name, printed = _printer(field)
        body[name] = value if printed is None else printed(value)
    if message.DESCRIPTOR.full_name in PASSTHROUGH_NAMES and (said := passthrough(message)) is not None:
        body[PASSTHROUGH_NAMES[message.DESCRIPTOR.full_name]] = msgspec.Raw(said)
    return body


@cache
def _printer(field: FieldDescriptor) -> tuple[str, Callable[[Any], Any] | None]:
    """A field's name in JSON, and what makes JSON of its value; None: it is JSON already."""
    one = _one_printer(field)
    if field.is_repeated and field.message_type is not None and field.message_type.GetOptions().map_entry:
        one = _one_printer(field.message_type.fields_by_name["value"]) or str
        return field.json_name, lambda values: {str(key): one(value) for key, value in values.items()}
    if field.is_repeated:
        return field.json_name, lambda values: [value if one is None else one(value) for value in values]
    return field.json_name, one


def _one_printer(field: FieldDescriptor) -> Callable[[Any], Any] | None:
    if field.message_type is not None:
        kind = field.message_type.full_name
        if kind in _TIMES:
            return lambda time: time.ToJsonString()
        return json_format.MessageToDict if kind.startswith(_WELL_KNOWN) else to_json
    if field.enum_type is not None:
        names = {value.number: value.name for value in field.enum_type.values}
        return lambda number: names.get(number, number)
    if field.cpp_type in _TEXTS_OF_NUMBERS:
        return str
    return (lambda data: b64encode(data).decode()) if field.type == FieldDescriptor.TYPE_BYTES else None


def fill(message: Any, value: Any, where: str = "") -> Mapping[str, Any]:
    """Set the fields of a message as a JSON value says; null is as if absent.

    Returns the extension fields, which Google does not have.  `where`: the path to it in the request, for errors.
    Raises InvalidArgument that names the field and the value.
    """
    if not isinstance(value, dict):
        raise _no_parts(where or "$", value, "a JSON object")
    fields, extension_names = _fields(message.DESCRIPTOR), EXTENSION_FIELDS.get(message.DESCRIPTOR.full_name, ())
    extension_fields: dict[str, Any] = {}
    given: set[str] = set()
    for key, item in value.items():
        field = fields.get(key)
        other_value = EXTENSION_VALUES.get((message.DESCRIPTOR.full_name, key))
        if (field is None and key in extension_names) or (other_value is not None and item == other_value):
            extension_fields[key] = item
            continue
        if field is None and key == PASSTHROUGH_NAMES.get(message.DESCRIPTOR.full_name):
            if item is not None:
                set_passthrough(message, msgspec.json.encode(item))
            continue
        if field is None:
            at = f"Unknown name \"{_cut(key)}\" at '{where or '$'}'"
            raise InvalidArgument(f"Invalid JSON payload received. {at}: Cannot find field.")
        if item is None:
            continue
        if field.name in given:
            raise InvalidArgument(f"Invalid value at '{where or '$'}': \"{key}\" is given in both spellings.")
        given.add(field.name)
        _check_oneof(message, field, where)
        extension_fields |= _set(message, field, item, f"{where}.{field.json_name}" if where else field.json_name)
    return extension_fields


@cache
def _fields(descriptor: Descriptor) -> dict[str, FieldDescriptor]:
    """Returns the fields of a message by either spelling."""
    return {name: field for field in descriptor.fields for name in (field.name, field.json_name)}


def _check_oneof(message: Any, field: FieldDescriptor, where: str) -> None:
    oneof = field.containing_oneof
    already = message.WhichOneof(oneof.name) if oneof is not None else None
    if oneof is not None and already is not None:
        names = " and ".join(member.json_name for member in oneof.fields)
        raise InvalidArgument(
            f"Invalid value at '{where or '$'}' (oneof), oneof field '{oneof.name}' is already set. Cannot set "
            f"'{field.json_name}': only one of {names} can be given."
        )


def _set(message: Any, field: FieldDescriptor, value: Any, where: str) -> Mapping[str, Any]:
    """Set one field; returns what is beside the fields of a message in it."""
    holder: Any = getattr(message, field.name) if field.is_repeated or field.message_type is not None else None
    if field.is_repeated and field.message_type is not None and field.message_type.GetOptions().map_entry:
        _set_map(holder, field.message_type, value, where)
    elif field.is_repeated:
        if not isinstance(value, list):
            raise _no_parts(where, value, "a list")
        for index, item in enumerate(value):
            if field.message_type is not None:
                _set_message(holder.add(), item, f"{where}[{index}]")
            else:
                holder.append(_scalar(field, item, f"{where}[{index}]"))
    elif field.message_type is not None:
        return _set_message(holder, value, where)
    else:
        setattr(message, field.name, _scalar(field, value, where))
    return {}


def _set_map(holder: Any, entry: Descriptor, value: Any, where: str) -> None:
    if not isinstance(value, dict):
        raise _no_parts(where, value, "a JSON object")
    key_field, value_field = entry.fields_by_name["key"], entry.fields_by_name["value"]
    for key, item in value.items():
        at = f"{where}[{_cut(key)}]"
        if value_field.message_type is not None:
            _set_message(holder[_scalar(key_field, key, at)], item, at)
        else:
            holder[_scalar(key_field, key, at)] = _scalar(value_field, item, at)


def _set_message(message: Any, value: Any, where: str) -> Mapping[str, Any]:
    kind = message.DESCRIPTOR.full_name
    if kind in _TIMES:
        if value != "":
            _set_time(message, value, where, is_duration=kind.endswith("Duration"))
    elif kind == "google.protobuf.FieldMask":
        message.paths.extend(parse_field_mask(_text(value, where)))
    elif kind.startswith(_WELL_KNOWN):  # Struct and the like
        try:
            json_format.ParseDict(value, message)
        except (json_format.ParseError, ValueError) as error:
            raise InvalidArgument(f"Invalid value at '{where}': {str(error)[:_SHOWN]}") from error
    else:
        message.SetInParent()
        return fill(message, value, where)
    return {}


def _set_time(message: Any, value: Any, where: str, *, is_duration: bool) -> None:
    if is_duration:
        parse_duration(value if isinstance(value, str) else _shown(value), where)
    else:
        parse_timestamp(value if isinstance(value, str) else _shown(value), where)
    message.FromJsonString(value if is_duration else value.upper())  # only this keeps nanoseconds


def _scalar(field: FieldDescriptor, value: Any, where: str) -> Any:
    if field.cpp_type in _INTEGERS:
        return _integer(value, where, *_INTEGERS[field.cpp_type])
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        text = value.lower() if isinstance(value, str) else value
        if isinstance(text, str | bool | int) and text in _BOOLS:
            return _BOOLS[text]
        raise _invalid(where, value, "true or false")
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        return _enum(field, value, where)
    if field.cpp_type in _FLOATS:
        return _float(value, where)
    return _bytes(value, where) if field.type == FieldDescriptor.TYPE_BYTES else _text(value, where)


def _integer(value: Any, where: str, least: int, most: int, kind: str) -> int:
    number = value
    if isinstance(value, str) and _QUOTED_NUMBER.fullmatch(value) and (exact := Decimal(value)) == int(exact):
        number = int(exact)
    elif isinstance(value, float) and value.is_integer():
        number = int(value)
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
        raise _invalid(where, value, kind)
    return number


def _enum(field: FieldDescriptor, value: Any, where: str) -> int:
    assert field.enum_type is not None
    known = {value.name: value.number for value in field.enum_type.values}
    if isinstance(value, str) and value in known:
        return known[value]
    if isinstance(value, int) and not isinstance(value, bool) and value in known.values():
        return value
    raise _invalid(where, value, f"one of {', '.join(known)}")


def _float(value: Any, where: str) -> float:
    try:
        number = float("x" if isinstance(value, bool | dict | list) else value)
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) and value not in _NUMBERS:
        raise _invalid(where, value, "a number")
    return number


def _bytes(value: Any, where: str) -> bytes:
    """Base64 of either alphabet, with padding or without."""
    text = _text(value, where).replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (Base64Error, ValueError):
        raise _invalid(where, value, "base64") from None


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise _invalid(where, value, "a text")
    return value


def _invalid(where: str, value: Any, expected: str) -> InvalidArgument:
    return InvalidArgument(f"Invalid value at '{where}': {expected} is expected, not {_shown(value)}.")


def _no_parts(where: str, value: Any, expected: str) -> InvalidArgument:
    """Returns the error for a value without parts where parts are expected.

    A text is not shown: it may be a secret.
    """
    shown = "a text" if isinstance(value, str) else _shown(value)
    return InvalidArgument(f"Invalid value at '{where}': {expected} is expected, not {shown}.")


def _shown(value: Any) -> str:
    """A refused value.  Of what has parts only what it is: one of them may be a secret."""
    if isinstance(value, dict | list):
        return "a JSON object" if isinstance(value, dict) else "a list"
    return _cut(value if isinstance(value, str) else msgspec.json.encode(value).decode())


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def fill_from_query(message: Any, query: Mapping[str, str]) -> None:
    """Sets the fields that a query has, in either spelling; system parameters and empty values are passed over.

    "options.requestedPolicyVersion" is a field of a field (google/api/http.proto).  The update mask is the caller's
    business, because it may come in several parts.  Raises InvalidArgument that names the field and the value.
    """
    fields = {name: field for name, field in _fields(message.DESCRIPTOR).items() if field.name != "update_mask"}
    body: dict[str, Any] = {name: value for name, value in query.items() if value and name in fields}
    for name, value in query.items():
        first, _, within = name.partition(".")
        if value and within and first in fields:
            body.setdefault(first, {})[within] = value
    fill(message, body)
