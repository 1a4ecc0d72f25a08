"""The syntax tree of a filter.

Keys and values are any text without U+0000, and are compared exactly: case matters, and Unicode is not normalised.
Every node is true or false for a message, never unknown.

A comparison of the body refers to a field of its JSON by the keys that lead to it, from the outside in.  An array
on the path stands for its elements: the comparison is true if it is true for one of them.  It is false if there is
no such field, or if the body cannot be parsed as JSON (broker/core/filtering/body.py).
"""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal, TypeAlias

Scalar: TypeAlias = str | Decimal | bool | None
FieldPath: TypeAlias = tuple[str, ...]
Order: TypeAlias = Literal["<", "<=", ">", ">="]


@dataclass(frozen=True, slots=True)
class Has:
    """The message has the attribute, whatever its value."""

    key: str


@dataclass(frozen=True, slots=True)
class Equals:
    """The message has the attribute with this value."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class NotEquals:
    """The complement of Equals: another value, or no such attribute at all."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class HasPrefix:
    """The message has the attribute and its value starts with `prefix`; every value starts with ""."""

    key: str
    prefix: str


@dataclass(frozen=True, slots=True)
class BodyHas:
    """The body has the field, whatever its value: null and an empty array are values."""

    path: FieldPath


@dataclass(frozen=True, slots=True)
class BodyEquals:
    """The body has the field with this value, of the same type.  Numbers are compared exactly, as decimals."""

    path: FieldPath
    value: Scalar


@dataclass(frozen=True, slots=True)
class BodyCompares:
    """The body has the field with a number that is so related to this one."""

    path: FieldPath
    order: Order
    value: Decimal


@dataclass(frozen=True, slots=True)
class BodyHasPrefix:
    """The body has the field with a string that starts with `prefix`."""

    path: FieldPath
    prefix: str


@dataclass(frozen=True, slots=True)
class PublishedBefore:
    """The message was published before this time.  No filter says it: it is how a changed filter keeps the verdict
    of the earlier one for earlier messages (broker/core/filtering/changes.py).
    """

    at: datetime


@dataclass(frozen=True, slots=True)
class Not:
    operand: "Expression"


@dataclass(frozen=True, slots=True)
class And:
    """A conjunction of one or more expressions."""

    operands: "tuple[Expression, ...]"


@dataclass(frozen=True, slots=True)
class Or:
    """A disjunction of one or more expressions."""

    operands: "tuple[Expression, ...]"


OfBody: TypeAlias = BodyHas | BodyEquals | BodyCompares | BodyHasPrefix
Expression: TypeAlias = Has | Equals | NotEquals | HasPrefix | OfBody | PublishedBefore | Not | And | Or
