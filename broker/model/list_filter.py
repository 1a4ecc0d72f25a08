"""Filters of lists: comparisons joined by AND, a subset of the filter language of Google's APIs
(https://google.aip.dev/160).

state = RUNNING AND target = "projects/shop/subscriptions/*"
"""

from functools import cache
from typing import Any, NamedTuple, cast

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedInput, VisitError

from broker.model.errors import InvalidArgument

MAX_FILTER_CHARACTERS = 1_000

_GRAMMAR = r"""
    start: comparison ("AND"? comparison)*
    comparison: FIELD OPERATOR value
    value: STRING | WORD
    OPERATOR: "!=" | ">=" | "<=" | "=" | ":" | ">" | "<"
    FIELD.2: /[A-Za-z]+(\.[A-Za-z]+)*(?=\s*(!=|>=|<=|=|:|>|<))/
    STRING: /"([^"\\]|\\["\\])*"/
    WORD: /[^\s"=<>!]+/
    %import common.WS
    %ignore WS
"""


class TextComparison(NamedTuple):
    """`operator`: =, !=, : (contains), <, <=, > or >=."""

    field: str
    operator: str
    value: str


def parse_list_filter(text: str, *, example: str) -> list[TextComparison]:
    """Raises InvalidArgument, which says what is not understood and gives an `example`."""
    if not text.strip():
        return []
    if len(text) > MAX_FILTER_CHARACTERS:
        raise InvalidArgument(f"filter has {len(text)} characters; {MAX_FILTER_CHARACTERS} are the most.")
    try:
        return cast(list[TextComparison], _Comparisons().transform(_parser().parse(text)))
    except VisitError as error:
        if isinstance(error.orig_exc, InvalidArgument):
            raise error.orig_exc from None
        raise
    except UnexpectedInput as error:
        rest = text[error.pos_in_stream or 0 :][:40]
        raise InvalidArgument(
            f"filter is not valid at {rest!r}: it is comparisons such as {example} with AND between them."
        ) from None


def refused_operator(field: str, operator: str) -> InvalidArgument:
    """The error for a comparison that a field does not have."""
    return InvalidArgument(f"filter: {field} cannot be compared by {operator}.")


def refused_field(field: str, known: list[str]) -> InvalidArgument:
    """The error for a field that there is not."""
    return InvalidArgument(f"filter: {field} cannot be compared; {', '.join(known)} can.")


@cache
def _parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr")


class _Comparisons(Transformer[Token, Any]):
    def start(self, children: list[TextComparison]) -> list[TextComparison]:
        return children

    def value(self, children: list[Token]) -> str:
        text = str(children[0])
        return text[1:-1].replace('\\"', '"').replace("\\\\", "\\") if text.startswith('"') else text

    def comparison(self, children: list[Any]) -> TextComparison:
        field, operator, value = str(children[0]), str(children[1]), str(children[2])
        if "\0" in value:
            raise InvalidArgument("filter has the character U+0000.")
        return TextComparison(field, operator, value)
