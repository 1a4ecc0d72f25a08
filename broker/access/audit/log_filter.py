"""The filter of a list of the audit log: comparisons joined by AND.

It is a subset of Google's query language: https://cloud.google.com/logging/docs/view/logging-query-language.

    protoPayload.methodName = "google.pubsub.v1.Publisher.DeleteTopic" AND timestamp >= "2026-01-01T00:00:00Z"
"""

from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, cast

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedInput, VisitError

from broker.access.audit.audit_entry import CODES
from broker.model.errors import InvalidArgument

MAX_FILTER_CHARACTERS = 2_000

TEXTS = frozenset(
    {
        "protoPayload.methodName",
        "protoPayload.resourceName",
        "protoPayload.authenticationInfo.principalEmail",
        "protoPayload.authenticationInfo.principalSubject",
        "protoPayload.authenticationInfo.credentialId",
        "protoPayload.requestMetadata.callerIp",
    }
)
TIME, CODE = "timestamp", "protoPayload.status.code"

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


@dataclass(frozen=True, slots=True)
class Comparison:
    """`operator`: =, !=, or : (contains) of texts; also <, <=, >, >= of times.  A status is its code's name."""

    field: str
    operator: str
    value: str | datetime


def parse_log_filter(text: str) -> list[Comparison]:
    """Raises InvalidArgument, which says what is not understood."""
    if not text.strip():
        return []
    if len(text) > MAX_FILTER_CHARACTERS:
        raise InvalidArgument(f"filter has {len(text)} characters; {MAX_FILTER_CHARACTERS} are the most.")
    try:
        return cast(list[Comparison], _Comparisons().transform(_parser().parse(text)))
    except VisitError as error:
        if isinstance(error.orig_exc, InvalidArgument):
            raise error.orig_exc from None
        raise
    except UnexpectedInput as error:
        rest = text[error.pos_in_stream or 0 :][:40]
        raise InvalidArgument(
            f"filter is not valid at {rest!r}: it is comparisons such as "
            'protoPayload.methodName="…" with AND between them.'
        ) from None


@cache
def _parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr")


class _Comparisons(Transformer[Token, Any]):
    def start(self, children: list[Comparison]) -> list[Comparison]:
        return children

    def value(self, children: list[Token]) -> str:
        text = str(children[0])
        return text[1:-1].replace('\\"', '"').replace("\\\\", "\\") if text.startswith('"') else text

    def comparison(self, children: list[Any]) -> Comparison:
        field, operator, value = str(children[0]), str(children[1]), str(children[2])
        if "\0" in value:
            raise InvalidArgument("filter has the character U+0000.")
        if field == TIME:
            if operator == ":":
                raise _refused(field, operator)
            return Comparison(field, operator, _time(value))
        if field not in TEXTS and field != CODE:
            raise InvalidArgument(
                f"filter: {field} cannot be compared; {', '.join(sorted({TIME, CODE, *TEXTS}))} can."
            )
        if operator not in ("=", "!=", ":") or (field == CODE and operator == ":"):
            raise _refused(field, operator)
        return Comparison(field, operator, _code(value) if field == CODE else value)


def _refused(field: str, operator: str) -> InvalidArgument:
    return InvalidArgument(f"filter: {field} cannot be compared by {operator}.")


def _code(value: str) -> str:
    for name, number in CODES.items():
        if value in (name, str(number)):
            return name
    raise InvalidArgument(f"filter: {CODE} is the number or the name of a code, not {value!r}.")


def _time(value: str) -> datetime:
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise InvalidArgument(f"filter: {TIME} is a time such as 2026-01-31T12:00:00Z, not {value!r}.")
    return time
