"""Compiles a filter to PostgreSQL jsonpaths: one for `attributes @@ filter_path`, and one more if it reads other
data.

* Only literals come from the user.  Each becomes one jsonpath string of ASCII (`json.dumps`, because both languages
  write strings alike), so no text of a user can end its literal, whatever the encoding between here and the server.
* lax mode: a missing key is an empty sequence, not an error, and an array at a step stands for its elements.
* Every comparison is within `exists(… ? (…))`, which is true or false even for data that no message should have.  A
  number compared with a string is "unknown", for which `@@` would return NULL, and the message would be lost.  A
  value in a body may have any type, so the type is checked first; an array within an array has no type.
"""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

from broker.core.filtering.ast import (
    And,
    BodyCompares,
    BodyEquals,
    BodyHas,
    BodyHasPrefix,
    Equals,
    Expression,
    FieldPath,
    Has,
    HasPrefix,
    Not,
    NotEquals,
    OfBody,
    Or,
    PublishedBefore,
    Scalar,
)

# Elements of the array that the function message_matches gives to `body_path`.
_ATTRIBUTES, _BODY, _PUBLISHED = "$[0]", "$[1]", "$[2]"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TYPES = {str: "string", Decimal: "number", bool: "boolean", type(None): "null"}


class FilterPaths(NamedTuple):
    """`filter_path` is a predicate on the attributes (None: no filter).

    Where attributes alone do not decide, because the filter reads bodies or was changed, `filter_path` is true
    wherever the filter may be, and `body_path` is the filter itself: a predicate on an array of the attributes, the
    body's JSON (an empty array if it cannot be read), and the publish time in seconds since 1970.
    """

    filter_path: str | None = None
    body_path: str | None = None


def filter_paths(expression: Expression) -> FilterPaths:
    """PostgreSQL refuses U+0000 in a jsonpath; parsed filters have none."""
    if _needs_attributes_only(expression):
        return FilterPaths(to_jsonpath(expression))
    bound = upper_bound(expression)
    return FilterPaths(
        "exists($)" if bound is None else to_jsonpath(bound), to_jsonpath(expression, attributes=_ATTRIBUTES)
    )


def to_jsonpath(expression: Expression, *, attributes: str = "$") -> str:
    """A jsonpath predicate that is true for the attributes (a jsonb object of strings) that match, else false."""
    match expression:
        case Has(key):
            return f"exists({_member(attributes, key)})"
        case Equals(key, value):
            return f"exists({_member(attributes, key)} ? (@ == {_string(value)}))"
        case NotEquals(key, value):
            return f"!{to_jsonpath(Equals(key, value), attributes=attributes)}"
        case HasPrefix(key, prefix):
            return f"exists({_member(attributes, key)} ? (@ starts with {_string(prefix)}))"
        case Not(operand):
            return f"!({to_jsonpath(operand, attributes=attributes)})"
        case And(operands):
            return f"({' && '.join(to_jsonpath(operand, attributes=attributes) for operand in operands)})"
        case Or(operands):
            return f"({' || '.join(to_jsonpath(operand, attributes=attributes) for operand in operands)})"
        case PublishedBefore(at):
            return f"{_PUBLISHED} < {_seconds(at)}"
        case of_body:
            return _of_body(of_body)


def _of_body(expression: OfBody) -> str:
    match expression:
        case BodyHas(path):
            return f"exists({_field(path)})"
        case BodyEquals(path, value):
            return _has_element(path, _TYPES[type(value)], f"== {_literal(value)}")
        case BodyCompares(path, order, number):
            return _has_element(path, "number", f"{order} {_literal(number)}")
        case BodyHasPrefix(path, prefix):
            return _has_element(path, "string", f"starts with {_string(prefix)}")


def _has_element(path: FieldPath, type_name: str, condition: str) -> str:
    return f'exists({_field(path)} ? (@.type() == "{type_name}" && @ {condition}))'


def _needs_attributes_only(expression: Expression) -> bool:
    match expression:
        case Not(operand):
            return _needs_attributes_only(operand)
        case And(operands) | Or(operands):
            return all(map(_needs_attributes_only, operands))
    return not isinstance(expression, OfBody | PublishedBefore)


def upper_bound(expression: Expression, *, negated: bool = False) -> Expression | None:
    """Returns a condition on attributes alone that holds wherever `expression` does (`negated`: does not).

    None: there is none.  With it, the body of a message that its attributes rule out is never read.
    """
    match expression:
        case Not(operand):
            return upper_bound(operand, negated=not negated)
        case And(operands) | Or(operands):
            bounds = [upper_bound(operand, negated=negated) for operand in operands]
            known = tuple(bound for bound in bounds if bound is not None)
            if isinstance(expression, And) is not negated:  # all of them hold
                return None if not known else known[0] if len(known) == 1 else And(known)
            return Or(known) if len(known) == len(bounds) else None
    if isinstance(expression, OfBody | PublishedBefore):
        return None
    return Not(expression) if negated else expression


def _member(within: str, key: str) -> str:
    return f"{within}.{_string(key)}"


def _field(path: FieldPath) -> str:
    within = _BODY
    for key in path:
        within = _member(within, key)
    return within


def _seconds(at: datetime) -> str:
    """Exactly, in microseconds: a float would round."""
    microseconds = (at - _EPOCH) // timedelta(microseconds=1)
    return f"{microseconds // 1_000_000}.{microseconds % 1_000_000:06}"


def _literal(value: Scalar) -> str:
    return str(value) if isinstance(value, Decimal) else json.dumps(value)


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=True)
