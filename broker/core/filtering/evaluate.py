"""Evaluates a filter in plain Python: the reference for the jsonpath, and the evaluator of dry runs."""

import operator
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from broker.core.filtering.ast import (
    And,
    BodyCompares,
    BodyEquals,
    BodyHas,
    BodyHasPrefix,
    Equals,
    Expression,
    Has,
    HasPrefix,
    Not,
    NotEquals,
    OfBody,
    Or,
    PublishedBefore,
)
from broker.core.filtering.body import elements_at, read_body, values_at

_LATER_THAN_ANY = datetime.max.replace(tzinfo=UTC)
_ORDERS: dict[str, Callable[[Decimal, Decimal], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def matches(
    expression: Expression,
    attributes: Mapping[str, str],
    body: bytes = b"",
    published: datetime = _LATER_THAN_ANY,
) -> bool:
    """Whether a message with these attributes and this body, published at this time, is delivered."""
    return _matches(expression, attributes, read_body(body), published)


def _matches(
    expression: Expression, attributes: Mapping[str, str], roots: Sequence[Any], published: datetime
) -> bool:
    match expression:
        case Has(key):
            return key in attributes
        case Equals(key, value):
            return attributes.get(key) == value
        case NotEquals(key, value):
            return attributes.get(key) != value
        case HasPrefix(key, prefix):
            return key in attributes and attributes[key].startswith(prefix)
        case Not(operand):
            return not _matches(operand, attributes, roots, published)
        case And(operands):
            return all(_matches(operand, attributes, roots, published) for operand in operands)
        case Or(operands):
            return any(_matches(operand, attributes, roots, published) for operand in operands)
        case PublishedBefore(at):
            return published < at
        case of_body:
            return _matches_body(of_body, roots)


def _matches_body(expression: OfBody, roots: Sequence[Any]) -> bool:
    match expression:
        case BodyHas(path):
            return bool(values_at(roots, path))
        case BodyEquals(path, value):
            return any(type(each) is type(value) and each == value for each in elements_at(roots, path))
        case BodyCompares(path, order, number):
            related = _ORDERS[order]
            return any(isinstance(each, Decimal) and related(each, number) for each in elements_at(roots, path))
        case BodyHasPrefix(path, prefix):
            return any(isinstance(each, str) and each.startswith(prefix) for each in elements_at(roots, path))
