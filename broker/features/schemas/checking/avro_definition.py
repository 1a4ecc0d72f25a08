"""Parses Avro definitions by the specification: https://avro.apache.org/docs/1.12.0/specification/

Each library accepts something that the specification forbids, and refuses something that it allows.  So only this
module decides what a valid definition is (docs/decisions/0072-standards.md).
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from broker.features.schemas.checking.avro_json import JsonChecks
from broker.features.schemas.checking.avro_measure import check_nesting
from broker.features.schemas.checking.mismatch import Misfit
from broker.features.schemas.checking.strict_json import decode_json, kind_of

PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
MAX_FIXED = 2**31 - 1  # bytes of a fixed type: what implementations can read

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ORDERS = ("ascending", "descending", "ignore")
_SHOWN = 100  # characters of a name in an error
_WHOLE = "the definition"


class AvroDefinition(NamedTuple):
    """A definition without what does not affect messages (documentation, logical types, other attributes).

    A primitive type is its name, a union a list, any other type an object.  Named types have full names; each is an
    object where it is defined, also in `types`, and its name where it is used.
    """

    schema: Any
    types: dict[str, Any]


def read_definition(text: str) -> AvroDefinition:
    """Raises ValueError, which says what is wrong and where; InvalidArgument if it is nested too deep."""
    source = decode_json(text)
    check_nesting(source)
    reader = _Reader()
    schema = reader.read(source, "", _WHOLE)
    reader.check_defaults()
    return AvroDefinition(schema, reader.types)


class _Reader:
    """Reads one definition, from left to right: a name is defined before it is used."""

    def __init__(self) -> None:
        self.types: dict[str, Any] = {}
        self._defaults: list[tuple[str, Any, Any]] = []  # where, of which type, the default

    def read(self, source: Any, namespace: str, where: str) -> Any:
        """`namespace`: of the enclosing definition."""
        if isinstance(source, str):
            return self._referred(source, namespace, where)
        if isinstance(source, list):
            return self._union(source, namespace, where)
        if not isinstance(source, dict):
            _refuse(where, f"a type is a name, an object or an array, not {kind_of(source)}")
        kind = _attribute(source, "type", str, where)
        if kind == "error":
            _refuse(where, "it has an error, which only protocols of Avro have")
        read: Callable[[Any, str, str], Any] | None = {
            "record": self._record,
            "enum": self._enum,
            "fixed": self._fixed,
            "array": self._array,
            "map": self._map,
        }.get(kind)
        return read(source, namespace, where) if read else self._referred(kind, namespace, where)

    def check_defaults(self) -> None:
        """Defaults may be of types that are defined after them."""
        checks = JsonChecks(self.types, of_defaults=True)
        for where, kind, value in self._defaults:
            try:
                checks.of(kind)(value)
            except Misfit as misfit:
                _refuse(where, f"the default does not match the field's type: {misfit.said('it')}")

    def _referred(self, name: str, namespace: str, where: str) -> str:
        if name in PRIMITIVES:
            return name
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        if full not in self.types:
            _refuse(where, f"there is no type {full[:_SHOWN]!r}, or it is defined later")
        return full

    def _union(self, source: list[Any], namespace: str, where: str) -> list[Any]:
        branches: list[Any] = []
        seen: set[tuple[str, bool]] = set()
        for part in source:
            if isinstance(part, list):
                _refuse(where, "a union cannot be a branch of another union")
            branch = self.read(part, namespace, where)
            key = branch_key(branch)
            if key in seen:
                _refuse(where, f"the union has {key[0][:_SHOWN]} twice")
            seen.add(key)
            branches.append(branch)
        return branches

    def _record(self, source: dict[str, Any], namespace: str, where: str) -> dict[str, Any]:
        record, namespace = self._define(source, namespace, where)
        fields: list[Any] = []
        record["fields"] = fields
        seen: set[str] = set()
        for given in _attribute(source, "fields", list, record["name"]):
            if not isinstance(given, dict):
                _refuse(record["name"], f"a field is an object, not {kind_of(given)}")
            name = _attribute(given, "name", str, record["name"])
            _check_name(name, record["name"], "the name of a field")
            if name in seen:
                _refuse(record["name"], f"it has two fields with the name {name[:_SHOWN]}")
            seen.add(name)
            fields.append(self._field(given, name, namespace, f"{record['name']}.{name}"))
        return record

    def _field(self, given: dict[str, Any], name: str, namespace: str, where: str) -> dict[str, Any]:
        if "type" not in given:
            _refuse(where, 'it has no "type"')
        field: dict[str, Any] = {"name": name, "type": self.read(given["type"], namespace, where)}
        if "order" in given and given["order"] not in _ORDERS:
            _refuse(where, f'the "order" is one of {", ".join(_ORDERS)}')
        _copy_aliases(given, field, where)
        if "default" in given:
            field["default"] = given["default"]
            self._defaults.append((where, field["type"], given["default"]))
        return field

    def _enum(self, source: dict[str, Any], namespace: str, where: str) -> dict[str, Any]:
        enum, _ = self._define(source, namespace, where)
        symbols = _attribute(source, "symbols", list, enum["name"])
        for symbol in symbols:
            if not isinstance(symbol, str):
                _refuse(enum["name"], f"a symbol is a string, not {kind_of(symbol)}")
            _check_name(symbol, enum["name"], "a symbol")
        if len(set(symbols)) < len(symbols):
            _refuse(enum["name"], "a symbol is given twice")
        enum["symbols"] = symbols
        if "default" in source:
            if not isinstance(source["default"], str) or source["default"] not in symbols:
                _refuse(enum["name"], 'the "default" is not one of the symbols')
            enum["default"] = source["default"]
        return enum

    def _fixed(self, source: dict[str, Any], namespace: str, where: str) -> dict[str, Any]:
        fixed, _ = self._define(source, namespace, where)
        size = _attribute(source, "size", int, fixed["name"])
        if not 0 <= size <= MAX_FIXED:
            _refuse(fixed["name"], f'the "size" is from 0 to {MAX_FIXED} bytes')
        fixed["size"] = size
        return fixed

    def _array(self, source: dict[str, Any], namespace: str, where: str) -> dict[str, Any]:
        if "items" not in source:
            _refuse(where, 'the array has no "items"')
        return {"type": "array", "items": self.read(source["items"], namespace, where)}

    def _map(self, source: dict[str, Any], namespace: str, where: str) -> dict[str, Any]:
        if "values" not in source:
            _refuse(where, 'the map has no "values"')
        return {"type": "map", "values": self.read(source["values"], namespace, where)}

    def _define(self, source: dict[str, Any], namespace: str, where: str) -> tuple[dict[str, Any], str]:
        """Add a named type, before what it is made of.  Returns the type and its namespace."""
        name = _attribute(source, "name", str, where)
        if "namespace" in source:
            given = _attribute(source, "namespace", str, where)
            namespace = namespace if "." in name else given
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        for part in full.split("."):
            _check_name(part, where, f"the full name {full[:_SHOWN]!r}, or a part of it,")
        if full.rpartition(".")[2] in PRIMITIVES:
            _refuse(where, f"{full[:_SHOWN]} has the name of a primitive type")
        if full in self.types:
            _refuse(where, f"{full[:_SHOWN]} is defined twice")
        defined = {"type": source["type"], "name": full}
        _copy_aliases(source, defined, full)
        self.types[full] = defined
        return defined, full.rpartition(".")[0]


def branch_key(branch: Any) -> tuple[str, bool]:
    """Returns the key by which branches of a union differ.

    It is the name of its type, and whether that is a primitive or named type.
    """
    if isinstance(branch, str):
        return branch, True
    return (branch["name"], True) if "name" in branch else (branch["type"], False)


def _attribute(source: dict[str, Any], name: str, kind: type, where: str) -> Any:
    if name not in source:
        _refuse(where, f'it has no "{name}"')
    value = source[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        wanted = {str: "a string", list: "an array", int: "an integer"}[kind]
        _refuse(where, f'the "{name}" is {wanted}, not {kind_of(value)}')
    return value


def _copy_aliases(source: dict[str, Any], target: dict[str, Any], where: str) -> None:
    """Copies aliases, which may be any strings: https://avro.apache.org/docs/1.12.0/specification/#aliases."""
    if "aliases" in source:
        aliases = _attribute(source, "aliases", list, where)
        if not all(isinstance(alias, str) for alias in aliases):
            _refuse(where, "an alias is a string")
        target["aliases"] = aliases


def _check_name(name: str, where: str, what: str) -> None:
    if not _NAME.fullmatch(name):
        _refuse(where, f"{what} begins with a letter or _ and has only A-Z, a-z, 0-9 and _: {name[:_SHOWN]!r}")


def _refuse(where: str, what: str) -> NoReturn:
    raise ValueError(f"{where[: 3 * _SHOWN]}: {what}")
