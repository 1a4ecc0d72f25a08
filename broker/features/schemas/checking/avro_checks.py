"""The checks of a definition's types, which are the same for both encodings."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

Check = TypeVar("Check")


class TypeChecks(Generic[Check]):
    """Makes the checks of types.  A subclass has what makes those of an encoding.

    `_record` gets a list that is still empty, because a record's fields may contain it: what `_field` makes of each
    field and its check is added afterwards.
    """

    _primitives: Mapping[str, Check]
    _array: Callable[[Check], Check]
    _map: Callable[[Check], Check]
    _enum: Callable[[Sequence[str]], Check]
    _fixed: Callable[[int], Check]
    _record: Callable[[list[Any]], Check]

    def __init__(self, types: Mapping[str, Any]) -> None:
        """`types`: the named ones, in the order of their definitions, so that what is used has its check."""
        self._types = types
        self._named: dict[str, Check] = {}
        for name in types:
            self._of_named(name)

    def of(self, kind: Any) -> Check:
        """The check of a type as a definition has it."""
        if isinstance(kind, str):
            return self._primitives[kind] if kind in self._primitives else self._of_named(kind)
        if isinstance(kind, list):
            return self._union(kind)
        if "name" in kind:
            return self._of_named(kind["name"])
        if kind["type"] == "array":
            return self._array(self.of(kind["items"]))
        return self._map(self.of(kind["values"]))

    def _of_named(self, name: str) -> Check:
        if name not in self._named:
            kind = self._types[name]
            if kind["type"] == "enum":
                self._named[name] = self._enum(kind["symbols"])
            elif kind["type"] == "fixed":
                self._named[name] = self._fixed(kind["size"])
            else:
                fields: list[Any] = []
                self._named[name] = self._record(fields)
                fields += [self._field(field, self.of(field["type"])) for field in kind["fields"]]
        return self._named[name]

    def _union(self, branches: Sequence[Any]) -> Check:
        raise NotImplementedError

    def _field(self, field: Mapping[str, Any], check: Check) -> Any:
        return check
