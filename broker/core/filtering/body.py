"""Parses a body as JSON in plain Python exactly as PostgreSQL's jsonb does, for filters.

jsonb rejects: U+0000 and unpaired surrogates in strings (and in keys), NaN and Infinity, numbers of more than
131,072 digits before the point or 16,383 after it, and nesting of some thousand levels.
"""

import json
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, NoReturn

from broker.core.filtering.ast import FieldPath

MAX_BODY_BYTES = 262_144  # a larger one is not read
_MAX_WHOLE_DIGITS, _MAX_DECIMALS = 131_072, 16_383


def read_body(data: bytes) -> Sequence[Any]:
    """The body's JSON, as the only element; none if it cannot be read.  Numbers are decimals."""
    if len(data) > MAX_BODY_BYTES:
        return ()
    try:
        document = json.loads(
            data.decode(), parse_float=_number, parse_int=_number, parse_constant=_refuse
        )  # of equal keys the last one counts
        json.dumps(document, ensure_ascii=False, default=str).encode()  # an unpaired surrogate has no UTF-8
        return () if _has_nul(document) else (document,)
    except (ValueError, ArithmeticError, RecursionError):
        return ()


def values_at(roots: Sequence[Any], path: FieldPath) -> list[Any]:
    """Returns the values at the path in the JSON: at each step an array stands for its elements."""
    found = list(roots)
    for key in path:
        found = [each[key] for each in _elements(found) if isinstance(each, dict) and key in each]
    return found


def elements_at(roots: Sequence[Any], path: FieldPath) -> list[Any]:
    """Returns the values as `values_at` does; an array among them stands for its elements."""
    return list(_elements(values_at(roots, path)))


def _elements(values: Sequence[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list):
            yield from value
        else:
            yield value


def _number(text: str) -> Decimal:
    number = Decimal(text)
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)  # neither NaN nor Infinity
    if (number and number.adjusted() >= _MAX_WHOLE_DIGITS) or -exponent > _MAX_DECIMALS:
        raise ValueError(text[:40])
    return number


def _refuse(text: str) -> NoReturn:
    raise ValueError(text)


def _has_nul(value: Any) -> bool:
    match value:
        case str():
            return "\0" in value
        case list():
            return any(map(_has_nul, value))
        case dict():
            return any("\0" in key or _has_nul(each) for key, each in value.items())
    return False
