"""Checks whether JSON is a value in Avro's JSON encoding.

https://avro.apache.org/docs/1.12.0/specification/#json-encoding.  The specification does not mention names that a
record does not have; they are ignored, as in Java's Avro.  Logical types do not matter: a value is judged by its
underlying type.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from broker.features.schemas.checking.avro_checks import TypeChecks
from broker.features.schemas.checking.mismatch import Misfit, check_items
from broker.features.schemas.checking.strict_json import kind_of

Check = Callable[[Any], None]  # raises Misfit

_INT, _LONG = 2**31, 2**63


def _label(branch: Any) -> str:
    """The name of a branch of a union, in an object that has a value of it."""
    if isinstance(branch, str):
        return branch
    return str(branch.get("name", branch["type"]))


def _passes(check: Check, value: Any) -> bool:
    try:
        check(value)
    except Misfit:
        return False
    return True


def _null(value: Any) -> None:
    if value is not None:
        raise Misfit(f"must be null, not {kind_of(value)}")


def _boolean(value: Any) -> None:
    if value is not True and value is not False:
        raise Misfit(f"must be boolean, not {kind_of(value)}")


def _int(value: Any) -> None:
    if type(value) is not int:
        raise Misfit(f"must be int, not {_but(value)}")
    if not -_INT <= value < _INT:
        raise Misfit(f"must be int, from {-_INT} to {_INT - 1}")


def _long(value: Any) -> None:
    if type(value) is not int:
        raise Misfit(f"must be long, not {_but(value)}")
    if not -_LONG <= value < _LONG:
        raise Misfit(f"must be long, from {-_LONG} to {_LONG - 1}")


def _but(value: Any) -> str:
    return "a number with a fraction or an exponent" if type(value) is float else kind_of(value)


def _float(value: Any) -> None:
    if type(value) is not float and type(value) is not int:
        raise Misfit(f"must be a number, not {kind_of(value)}")


def _string(value: Any) -> None:
    if type(value) is not str:
        raise Misfit(f"must be string, not {kind_of(value)}")
    if not value.isascii():
        _check_text(value)


def _check_text(value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Misfit("must be of Unicode characters, and has half of a surrogate pair") from None


def _bytes(value: Any) -> None:
    if type(value) is not str:
        raise Misfit(f"must be bytes as a string, not {kind_of(value)}")
    if not value.isascii() and max(value) > "\xff":
        raise Misfit("must be bytes as a string of U+0000 to U+00FF, a character for each byte")


_PRIMITIVES: dict[str, Check] = {
    "null": _null,
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": _float,
    "double": _float,
    "bytes": _bytes,
    "string": _string,
}


def _enum(names: Sequence[str]) -> Check:
    symbols = frozenset(names)

    def check(value: Any) -> None:
        if type(value) is not str:
            raise Misfit(f"must be the symbol of an enum, not {kind_of(value)}")
        if value not in symbols:
            raise Misfit("must be one of the symbols of its enum")

    return check


def _fixed(size: int) -> Check:
    def check(value: Any) -> None:
        _bytes(value)
        if len(value) != size:
            raise Misfit(f"must be {size} bytes, not {len(value)}")

    return check


def _array(item: Check) -> Check:
    def check(value: Any) -> None:
        if type(value) is not list:
            raise Misfit(f"must be an array, not {kind_of(value)}")
        check_items(value, item)

    return check


def _map(item: Check) -> Check:
    def check(value: Any) -> None:
        if type(value) is not dict:
            raise Misfit(f"must be a map, which is an object, not {kind_of(value)}")
        try:
            for key, part in value.items():
                if not key.isascii():
                    _check_text(key)
                item(part)
        except Misfit as misfit:
            raise misfit.within("[a key]") from None

    return check


def _record(fields: list[tuple[str, bool, Check]]) -> Check:
    def check(value: Any) -> None:
        if type(value) is not dict:
            raise Misfit(f"must be a record, which is an object, not {kind_of(value)}")
        name = ""
        try:
            for name, optional, field in fields:
                if name in value:
                    field(value[name])
                elif not optional:
                    raise Misfit("is missing")
        except Misfit as misfit:
            raise misfit.within(f".{name}") from None

    return check


class JsonChecks(TypeChecks[Check]):
    _primitives = _PRIMITIVES
    _array, _map = staticmethod(_array), staticmethod(_map)
    _enum, _fixed, _record = staticmethod(_enum), staticmethod(_fixed), staticmethod(_record)

    def __init__(self, types: Mapping[str, Any], *, of_defaults: bool = False) -> None:
        """`of_defaults`: of the values that fields have as defaults.

        They are encoded differently: the value of a union stands without the name of its branch, and a record may
        lack fields that have a default of their own.
        """
        self._of_defaults = of_defaults
        super().__init__(types)

    def _field(self, field: Mapping[str, Any], check: Check) -> tuple[str, bool, Check]:
        return field["name"], self._of_defaults and "default" in field, check

    def _union(self, branches: Sequence[Any]) -> Check:
        return self._any_of(branches) if self._of_defaults else self._labelled(branches)

    def _labelled(self, branches: Sequence[Any]) -> Check:
        takes_null = "null" in branches
        by_label: dict[str, Check] = {}
        for branch in branches:
            if branch != "null":
                by_label.setdefault(_label(branch), self.of(branch))
        labels = ", ".join(map(_label, branches))[:200]

        def check(value: Any) -> None:
            if value is None and takes_null:
                return
            if type(value) is not dict or len(value) != 1:
                raise Misfit(f'must be a union of {labels}: null, or an object such as {{"type": value}}')
            [(label, inner)] = value.items()
            inner_check = by_label.get(label)
            if inner_check is None:
                raise Misfit(f"must be a union of {labels}, and the name in its object is none of them")
            try:
                inner_check(inner)
            except Misfit as misfit:
                raise misfit.within(f".{label}") from None

        return check

    def _any_of(self, branches: Sequence[Any]) -> Check:
        checks = [self.of(branch) for branch in branches]
        seen: dict[int, bool] = {}  # by the value's id: each is looked at once, whatever contains it

        def check(value: Any) -> None:
            key = id(value)
            if key not in seen:
                seen[key] = any(_passes(each, value) for each in checks)
            if not seen[key]:
                raise Misfit(f"must be a value of one of {', '.join(map(_label, branches))[:200]}")

        return check
