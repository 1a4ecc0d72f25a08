"""Scalars of protobuf's JSON mapping that msgspec has no type for."""

import re
from datetime import UTC, datetime, timedelta

from broker.domain.errors import InvalidArgument

# [0-9], not \d: Python's \d and int() take the digits of any script, and int() takes 1_000 as well.
_TIMESTAMP = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_DURATION = re.compile(r"(-?)([0-9]{1,12})(?:\.([0-9]{1,9}))?s")
_INTEGER = re.compile(r"-?[0-9]{1,20}")


def parse_duration(text: str, field: str) -> timedelta:
    """A duration such as "600s" or "0.5s", to the microsecond.  Raises InvalidArgument that names the field."""
    match = _DURATION.fullmatch(text)
    if match is None or int(match[2]) > 315_576_000_000:  # protobuf's bound: about 10,000 years
        raise InvalidArgument(f"Invalid value at '{field}': {text!r} is not a duration such as \"600s\".")
    fraction = int((match[3] or "").ljust(9, "0")[:6])
    value = timedelta(seconds=int(match[2]), microseconds=fraction)
    return -value if match[1] else value


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
            f"Invalid value at '{field}': {text!r} is not a time such as \"2026-11-21T07:00:00Z\"."
        ) from None
    return moment.replace(microsecond=int((fraction or "").ljust(9, "0")[:6]))


def parse_int32(text: str, field: str) -> int:
    """A number from a query parameter.  Raises InvalidArgument that names the field."""
    if not _INTEGER.fullmatch(text):
        raise InvalidArgument(f"Invalid value at '{field}': {text!r} is not a number.")
    value = int(text)
    if not -(2**31) <= value < 2**31:
        raise InvalidArgument(f"Invalid value at '{field}': {text} is out of range.")
    return value
