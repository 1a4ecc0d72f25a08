"""The filter of a list of the audit log: comparisons joined by AND.

It is a subset of Google's query language: https://cloud.google.com/logging/docs/view/logging-query-language.

    protoPayload.methodName = "google.pubsub.v1.Publisher.DeleteTopic" AND timestamp >= "2026-01-01T00:00:00Z"
"""

from dataclasses import dataclass
from datetime import datetime

from broker.access.audit.audit_entry import CODES
from broker.model.errors import InvalidArgument
from broker.model.list_filter import TextComparison, parse_list_filter, refused_field, refused_operator

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


@dataclass(frozen=True, slots=True)
class Comparison:
    """`operator`: =, !=, or : (contains) of texts; also <, <=, >, >= of times.  A status is its code's name."""

    field: str
    operator: str
    value: str | datetime


def parse_log_filter(text: str) -> list[Comparison]:
    """Raises InvalidArgument, which says what is not understood."""
    return [_comparison(each) for each in parse_list_filter(text, example='protoPayload.methodName="…"')]


def _comparison(given: TextComparison) -> Comparison:
    field, operator, value = given
    if field == TIME:
        if operator == ":":
            raise refused_operator(field, operator)
        return Comparison(field, operator, _time(value))
    if field not in TEXTS and field != CODE:
        raise refused_field(field, sorted({TIME, CODE, *TEXTS}))
    if operator not in ("=", "!=", ":") or (field == CODE and operator == ":"):
        raise refused_operator(field, operator)
    return Comparison(field, operator, _code(value) if field == CODE else value)


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
