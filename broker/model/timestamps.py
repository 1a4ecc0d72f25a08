"""Formats and parses times as the API does."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from broker.model.errors import InvalidArgument

# [0-9], not \d: Python's \d and int() take the digits of any script.
_TIMESTAMP = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)

_SECOND = timedelta(seconds=1)
_ZERO = timedelta()
_ENDS = tuple(f".{milliseconds:03}Z" for milliseconds in range(1000))

# The bounds of a range of publish times that a request leaves open.
EVER, END_OF_TIME = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)


def whole_milliseconds(moment: datetime) -> datetime:
    """Rounds down to milliseconds, as publish times are, and are shown.

    So a seek to a time that a client was shown means that very message.
    """
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def format_timestamp(moment: datetime) -> str:
    """RFC 3339 in UTC with milliseconds, as the service prints it."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def timestamp_formatter() -> Callable[[datetime], str]:
    """Returns a faster `format_timestamp`.

    It needs a third of the time for moments that follow each other closely.
    """
    second = datetime.min.replace(tzinfo=UTC)
    until_second = ""

    def format_next(moment: datetime) -> str:
        nonlocal second, until_second
        if not _ZERO <= moment - second < _SECOND:
            second = moment.astimezone(UTC).replace(microsecond=0)
            until_second = second.isoformat().removesuffix("+00:00")
        return until_second + _ENDS[moment.microsecond // 1000]

    return format_next


def parse_timestamp(text: str, field: str) -> datetime:
    """An RFC 3339 time such as "2026-11-21T07:00:00Z", to the microsecond.  Raises InvalidArgument."""
    match = _TIMESTAMP.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        whole, fraction, zone = match.groups()
        moment = datetime.fromisoformat(f"{whole.upper()}{zone.upper().replace('Z', '+00:00')}").astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidArgument(
            f"Invalid value at '{field}': {text[:100]!r} is not a time such as \"2026-11-21T07:00:00Z\"."
        ) from None
    return moment.replace(microsecond=int((fraction or "").ljust(9, "0")[:6]))
