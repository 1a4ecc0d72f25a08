"""Parses the text of a filter to its syntax tree."""

from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any, cast

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedToken

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
    Or,
    Scalar,
)
from broker.core.filtering.literals import unquote
from broker.core.filtering.refusals import refusal, unexpected
from broker.model.errors import InvalidArgument

MAX_FILTER_BYTES = 256  # of UTF-8; https://cloud.google.com/pubsub/quotas#resource_limits
MAX_EXPONENT = 308  # of a number: the largest that all JSON parsers read
_CONSTANTS = {"true": True, "false": False, "null": None}


def parse_filter(text: str) -> Expression:
    """Parses `text`.  An empty text is no filter: callers do not pass it.

    The tree is at most about a hundred levels deep, as the text is short: functions over it may recurse.  Raises
    InvalidArgument with the column (in characters, from 1; a line break is one) and what was expected.
    """
    _check_size(text)
    try:
        return cast(Expression, _parser().parse(text))
    except UnexpectedToken as error:
        at_end = error.token.type == "$END"
        start = len(text) if at_end else _column(error.token) - 1
        found = "" if at_end else str(error.token)
    except UnexpectedCharacters as error:
        start = error.pos_in_stream or 0
        found = text[start:] if text[start] == '"' else text[start]
    raise unexpected(start + 1, found, _accepted_after(text[:start]))


def _accepted_after(text: str) -> set[str]:
    """The terminals that can follow `text`, which is a filter as far as it goes."""
    parser: Any = _parser().parse_interactive(text)  # its methods are not typed
    parser.exhaust_lexer()
    accepted: set[str] = parser.accepts()
    return accepted


def _check_size(text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise refusal(error.start + 1, "half a surrogate pair is not a character") from None
    if size > MAX_FILTER_BYTES:
        raise InvalidArgument(
            f"The filter is not valid: it has {size} bytes of UTF-8, the maximum is {MAX_FILTER_BYTES}."
        )


def _column(token: Token) -> int:
    assert token.start_pos is not None
    return token.start_pos + 1


class _Builder(Transformer[Token, Expression]):
    """Called by the parser for every rule as soon as it is complete: there is no tree of text to walk."""

    def bare_key(self, children: list[Token]) -> str:
        return str(children[0])

    def string(self, children: list[Token]) -> str:
        return unquote(str(children[0]), _column(children[0]))

    def has(self, children: list[str]) -> Has:
        return Has(*children)

    def equals(self, children: list[str]) -> Equals:
        return Equals(*children)

    def not_equals(self, children: list[str]) -> NotEquals:
        return NotEquals(*children)

    def has_prefix(self, children: list[str]) -> HasPrefix:
        return HasPrefix(*children)

    def path(self, children: list[str]) -> FieldPath:
        return tuple(children)

    def constant(self, children: list[Token]) -> bool | None:
        return _CONSTANTS[children[0]]

    def number(self, children: list[Token]) -> Decimal:
        number = Decimal(children[0])
        if number and abs(number.adjusted()) > MAX_EXPONENT:
            raise refusal(
                _column(children[0]), f"a number is between 1e-{MAX_EXPONENT} and 1e{MAX_EXPONENT}, or zero"
            )
        return number

    def body_has(self, children: list[FieldPath]) -> BodyHas:
        return BodyHas(*children)

    def body_equals(self, children: tuple[FieldPath, Scalar]) -> BodyEquals:
        return BodyEquals(*children)

    def body_not_equals(self, children: tuple[FieldPath, Scalar]) -> Not:
        return Not(BodyEquals(*children))

    def body_compares(self, children: tuple[FieldPath, Any, Decimal]) -> BodyCompares:
        path, order, number = children
        return BodyCompares(path, str(order), number)  # type: ignore[arg-type]  # the grammar has no others

    def body_has_prefix(self, children: tuple[FieldPath, str]) -> BodyHasPrefix:
        return BodyHasPrefix(*children)

    def negation(self, children: list[Expression]) -> Not:
        return Not(*children)

    def all_of(self, children: list[Expression]) -> And:
        return And(tuple(children))

    def any_of(self, children: list[Expression]) -> Or:
        return Or(tuple(children))


@cache
def _parser() -> Lark:
    """Built at the first filter; it keeps no state between texts."""
    grammar = files("broker.core.filtering").joinpath("grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", lexer="contextual", transformer=_Builder())
