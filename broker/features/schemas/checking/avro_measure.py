"""Computes how large the value of a few encoded bytes can be, by an Avro definition (avro_definition.py)."""

from math import inf
from typing import Any, NamedTuple

from broker.model.errors import InvalidArgument

MAX_NESTING = 200  # of a definition's JSON, which is read by functions that call themselves
MAX_VALUES = 100_000  # of a message without an array or a map: each may be null, which takes no bytes
_ROUNDS = 100

_BYTES = {"null": 0, "float": 4, "double": 8}  # of a value; a byte at least, of any other type


class Measure(NamedTuple):
    """`values`: that one message has at most; for each of its bytes, where something `repeats`.

    `depth`: how many values are within each other at most; for each of its bytes, if the definition `is_recursive`.
    """

    values: int
    repeats: bool
    is_recursive: bool
    depth: int


def check_nesting(definition: object) -> None:
    """Raises InvalidArgument for JSON that is nested deeper than MAX_NESTING."""
    level: list[object] = [definition]
    depth = 0
    while level:
        depth += 1
        if depth > MAX_NESTING:
            raise InvalidArgument(f"The field schema.definition is nested more than {MAX_NESTING} levels deep.")
        level = [
            item
            for value in level
            if isinstance(value, dict | list)
            for item in (value.values() if isinstance(value, dict) else value)
            if isinstance(item, dict | list)
        ]


def measure(schema: Any, names: dict[str, Any]) -> Measure:
    """`names`: the named types.  Raises InvalidArgument if a message could have values without end."""
    least = _least_bytes(names)
    endless = next((name for name, size in least.items() if size == inf), None)
    if endless is not None:
        raise InvalidArgument(
            f"The field schema.definition has a type that contains itself without an end: {endless[:200]}. Make "
            "that field a union with null, an array or a map."
        )
    walk = _Walk(names, least)
    values = walk.values(schema)
    if values > MAX_VALUES:
        raise InvalidArgument(
            f"The field schema.definition is too large: one message could have more than {MAX_VALUES} values in "
            "a few bytes."
        )
    for name in names:  # in the order of their definitions, so that what is used is known
        walk.depth(name)
    return Measure(values, walk.repeats or walk.is_recursive, walk.is_recursive, walk.depth(schema))


def _parts(schema: Any) -> list[Any]:
    """The types that a type is made of."""
    if isinstance(schema, list):
        return schema
    if not isinstance(schema, dict):
        return []
    kind = schema["type"]
    if kind == "record":
        return [field["type"] for field in schema["fields"]]
    if kind in ("array", "map"):
        return [schema["items" if kind == "array" else "values"]]
    return []


def _least_bytes(names: dict[str, Any]) -> dict[str, float]:
    """Returns the least size of a value of each named type, in bytes; inf: it has no end."""
    least: dict[str, float] = dict.fromkeys(names, inf)
    for _ in range(_ROUNDS):
        changed = False
        for name in reversed(names):  # what is defined within another comes first
            size = _least(names[name], least)
            changed, least[name] = changed or size != least[name], size
        if not changed:
            return least
    raise InvalidArgument("The field schema.definition has types that refer to each other in too many ways.")


def _least(schema: Any, least: dict[str, float]) -> float:
    if isinstance(schema, str):
        return least[schema] if schema in least else _BYTES.get(schema, 1)
    if isinstance(schema, list):
        return 1 + min((_least(branch, least) for branch in schema), default=0)
    kind = schema["type"]
    if kind == "record":
        return sum(_part_least(part, least) for part in _parts(schema))
    if kind == "fixed":
        return float(schema["size"])
    return _BYTES.get(kind, 1)


def _part_least(schema: Any, least: dict[str, float]) -> float:
    """Returns the least size of a type within another one: by its name, if it has one."""
    named = isinstance(schema, dict) and schema.get("name") in least
    return least[schema["name"]] if named else _least(schema, least)


class _Walk:
    def __init__(self, names: dict[str, Any], least: dict[str, float]) -> None:
        self._names = names
        self._least = least
        self._known: dict[str, int] = {}
        self._under_way: set[str] = set()
        self.repeats = False
        self.is_recursive = False
        self._depths: dict[str, int] = {}

    def values(self, schema: Any) -> int:
        """Returns how many values one of this type has at most, an array or a map counted as of one item."""
        name = schema if isinstance(schema, str) else schema.get("name") if isinstance(schema, dict) else None
        if name not in self._names:
            return self._anonymous(schema)
        if name in self._under_way:
            self.is_recursive = True
            return 1
        if name not in self._known:
            self._under_way.add(name)
            self._known[name] = self._anonymous(self._names[name])
            self._under_way.discard(name)
        return self._known[name]

    def depth(self, schema: Any) -> int:
        """Returns how deep values of this type are nested at most, where a type within itself counts once."""
        name = schema if isinstance(schema, str) else schema.get("name") if isinstance(schema, dict) else None
        if name not in self._names:
            return self._deepest_part(schema)
        if name not in self._depths:
            self._depths[name] = 0
            self._depths[name] = self._deepest_part(self._names[name])
        return self._depths[name]

    def _deepest_part(self, schema: Any) -> int:
        entry = isinstance(schema, dict) and schema["type"] == "map"  # with a key beside the value
        return 1 + entry + max(map(self.depth, _parts(schema)), default=0)

    def _anonymous(self, schema: Any) -> int:
        parts = _parts(schema)
        if isinstance(schema, list):
            return 1 + max(map(self.values, parts), default=0)
        if isinstance(schema, dict) and schema["type"] in ("array", "map"):
            self.repeats = True
            if schema["type"] == "array" and _part_least(parts[0], self._least) == 0:
                raise InvalidArgument(
                    "The field schema.definition has an array whose items take no bytes: a message of a few bytes "
                    "could have any number of them."
                )
        return min(1 + sum(map(self.values, parts)), 10**9)
