"""What a filter says, as a tree of values.

Keys and values are any text without U+0000, compared exactly: case counts, and Unicode is not normalised.
Every node is true or false for a message, never unknown.
"""

from dataclasses import dataclass
from typing import TypeAlias


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
class Not:
    operand: "Expression"


@dataclass(frozen=True, slots=True)
class And:
    """All of two or more."""

    operands: "tuple[Expression, ...]"


@dataclass(frozen=True, slots=True)
class Or:
    """Any of two or more."""

    operands: "tuple[Expression, ...]"


Expression: TypeAlias = Has | Equals | NotEquals | HasPrefix | Not | And | Or
