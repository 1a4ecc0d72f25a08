"""Rejects JSON that ProtoJSON forbids but Google's Python library accepts:
https://protobuf.dev/programming-guides/json/.

These checks examine only the shape, before the library reads a message, and only narrow what it accepts.  The
library accepts `[]` and "" for a message, true for a double or an enum, "1_0" for a number, any text for base64,
and both names of one field.
"""

import re
from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from broker.features.schemas.checking.mismatch import Misfit, check_items
from broker.features.schemas.checking.strict_json import kind_of

Check = Callable[[Any], None]  # raises Misfit

_WHOLE = re.compile(r"[+-]?[0-9]+(\.0*)?([eE][+-]?[0-9]+)?")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")
_BASE64 = re.compile(r"([A-Za-z0-9+/]*|[A-Za-z0-9_-]*)(={0,2})")
_LARGEST_FLOAT = 2.0**128 - 2.0**103  # what is at least this is not rounded to a float that is finite

# Well-known types with a form of their own in JSON: what they are, None for any value.
_WELL_KNOWN: dict[str, type | None] = {
    "google.protobuf.Timestamp": str,
    "google.protobuf.Duration": str,
    "google.protobuf.FieldMask": str,
    "google.protobuf.Struct": dict,
    "google.protobuf.Any": dict,
    "google.protobuf.ListValue": list,
    "google.protobuf.Value": None,
}
_WRAPPERS = {
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
_TEXTS = {
    "google.protobuf.Timestamp": re.compile("[0-9TZ:.+-]+"),
    "google.protobuf.Duration": re.compile("[0-9.s-]+"),
}
_TEXT_KEYS = (FieldDescriptor.CPPTYPE_BOOL, FieldDescriptor.CPPTYPE_STRING)
_NAMES: dict[type, str] = {str: "a string", dict: "an object", list: "an array"}


class ShapeChecks:
    """Makes the checks of a schema's types, each when a message first has it."""

    def __init__(self) -> None:
        self._known: dict[str, Check] = {}

    def of(self, kind: Descriptor) -> Check:
        """The check of a message."""
        name = kind.full_name
        if name not in self._known:
            if name in _WELL_KNOWN:
                self._known[name] = _well_known(name)
            elif name in _WRAPPERS:
                self._known[name] = self._of_one(kind.fields_by_name["value"])
            else:
                self._known[name] = self._of_fields(kind)
        return self._known[name]

    def _of_fields(self, kind: Descriptor) -> Check:
        fields: dict[str, tuple[int, Check]] = {}

        def check(value: Any) -> None:
            if type(value) is not dict:
                raise Misfit(f"must be a message, which is an object, not {kind_of(value)}")
            if not fields:
                for field in kind.fields:
                    fields[field.name] = fields[field.json_name] = field.number, self._of_field(field)
            given: list[int] = []
            name = ""
            try:
                for name, part in value.items():
                    if name not in fields:
                        continue  # the library names it, or it is an extension
                    number, field_check = fields[name]
                    if number in given:
                        raise Misfit("is given twice, by both of its names")
                    given.append(number)
                    if part is not None:
                        field_check(part)
            except Misfit as misfit:
                raise misfit.within(f".{name}") from None

        return check

    def _of_field(self, field: FieldDescriptor) -> Check:
        if not field.is_repeated:
            return self._of_one(field)
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            has_numbers = entry.fields_by_name["key"].cpp_type not in _TEXT_KEYS
            return _map(has_numbers, self._of_one(entry.fields_by_name["value"]))
        return _repeated(self._of_one(field))

    def _of_one(self, field: FieldDescriptor) -> Check:
        """The check of one value of the field."""
        if field.message_type is not None:
            kind = field.message_type
            return lambda value: self.of(kind)(value)
        return _check_bytes if field.type == FieldDescriptor.TYPE_BYTES else _SCALARS[field.cpp_type]


def _well_known(name: str) -> Check:
    wanted, pattern = _WELL_KNOWN[name], _TEXTS.get(name)

    def check(value: Any) -> None:
        if wanted is not None and type(value) is not wanted:
            raise Misfit(f"must be {name}, which is {_NAMES[wanted]}, not {kind_of(value)}")
        if pattern is not None and not pattern.fullmatch(value):
            raise Misfit(f"must be {name}, and the string is none")

    return check


def _repeated(item: Check) -> Check:
    def check(value: Any) -> None:
        if type(value) is not list:
            raise Misfit(f"must be repeated, which is an array, not {kind_of(value)}")
        check_items(value, item)

    return check


def _map(has_numbers: bool, item: Check) -> Check:
    def check(value: Any) -> None:
        if type(value) is not dict:
            raise Misfit(f"must be a map, which is an object, not {kind_of(value)}")
        try:
            for key, part in value.items():
                if has_numbers:
                    _check_whole(key)
                item(part)
        except Misfit as misfit:
            raise misfit.within("[a key]") from None

    return check


def _check_whole(value: Any) -> None:
    if type(value) is str:
        if not _WHOLE.fullmatch(value):
            raise Misfit("must be an integer, and the string is none")
    elif type(value) is not int and not (type(value) is float and value.is_integer()):
        raise Misfit(f"must be an integer, not {'a fraction' if type(value) is float else kind_of(value)}")


def _check_double(value: Any) -> None:
    _as_float(value)


def _check_float(value: Any) -> None:
    if _LARGEST_FLOAT <= abs(_as_float(value)) < float("inf"):
        raise Misfit("must be a float, which has 32 bits, and the number is too large")


def _as_float(value: Any) -> float:
    if type(value) is str:
        if value in _NOT_FINITE:
            return 0.0
        if not _NUMBER.fullmatch(value):
            raise Misfit("must be a number, and the string is none")
    elif type(value) not in (int, float):
        raise Misfit(f"must be a number, not {kind_of(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if abs(number) == float("inf"):
        raise Misfit("must be a double, which has 64 bits, and the number is too large")
    return number


def _check_boolean(value: Any) -> None:
    if type(value) is not bool:
        raise Misfit(f"must be true or false, not {kind_of(value)}")


def _check_string(value: Any) -> None:
    if type(value) is not str:
        raise Misfit(f"must be a string, not {kind_of(value)}")


def _check_bytes(value: Any) -> None:
    _check_string(value)
    found = _BASE64.fullmatch(value)
    if found is None or len(found[1]) % 4 == 1 or (found[2] and len(value) % 4):
        raise Misfit("must be base64, with or without padding, and the string is not")


def _check_enum(value: Any) -> None:
    if type(value) is not str:  # a name, or a number as a string
        _check_whole(value)


_SCALARS: dict[int, Check] = {
    FieldDescriptor.CPPTYPE_INT32: _check_whole,
    FieldDescriptor.CPPTYPE_INT64: _check_whole,
    FieldDescriptor.CPPTYPE_UINT32: _check_whole,
    FieldDescriptor.CPPTYPE_UINT64: _check_whole,
    FieldDescriptor.CPPTYPE_DOUBLE: _check_double,
    FieldDescriptor.CPPTYPE_FLOAT: _check_float,
    FieldDescriptor.CPPTYPE_BOOL: _check_boolean,
    FieldDescriptor.CPPTYPE_ENUM: _check_enum,
    FieldDescriptor.CPPTYPE_STRING: _check_string,
}
