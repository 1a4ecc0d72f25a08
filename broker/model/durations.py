"""Formats and parses durations as the API does."""

import re
from datetime import timedelta
from typing import Any

from broker.model.errors import InvalidArgument

# [0-9], not \d: Python's \d and int() take the digits of any script, and int() takes 1_000 as well.
_DURATION = re.compile(r"(-?)([0-9]{1,12})(?:\.([0-9]{1,9}))?s")
_MICROSECOND = timedelta(microseconds=1)


class Duration(timedelta):
    """A google.protobuf.Duration: a timedelta and up to 999 nanoseconds more, with its sign.

    Arithmetic drops the nanoseconds; they count in comparisons.
    """

    nanoseconds: int

    def __new__(cls, *, microseconds: int, nanoseconds: int = 0) -> "Duration":
        duration = super().__new__(cls, microseconds=microseconds)
        duration.nanoseconds = nanoseconds
        return duration

    def __reduce__(self) -> Any:
        return _make, (self // _MICROSECOND, self.nanoseconds)

    @property
    def microseconds_alone(self) -> timedelta:
        """The duration without its nanoseconds."""
        return timedelta(microseconds=self // _MICROSECOND)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, timedelta) and _nanoseconds(self) == _nanoseconds(other)

    def __ne__(self, other: object) -> bool:  # timedelta has one of its own
        return not self == other

    def __hash__(self) -> int:
        return super().__hash__()

    def __lt__(self, other: timedelta) -> bool:
        return _nanoseconds(self) < _nanoseconds(other)

    def __le__(self, other: timedelta) -> bool:
        return _nanoseconds(self) <= _nanoseconds(other)

    def __gt__(self, other: timedelta) -> bool:
        return _nanoseconds(self) > _nanoseconds(other)

    def __ge__(self, other: timedelta) -> bool:
        return _nanoseconds(self) >= _nanoseconds(other)


def _make(microseconds: int, nanoseconds: int) -> Duration:
    return Duration(microseconds=microseconds, nanoseconds=nanoseconds)


def _nanoseconds(value: timedelta) -> int:
    return value // _MICROSECOND * 1000 + (value.nanoseconds if isinstance(value, Duration) else 0)


def seconds_and_nanoseconds(value: timedelta) -> tuple[int, int]:
    """The two fields of google.protobuf.Duration; both have the sign of the duration."""
    nanoseconds = _nanoseconds(value)
    seconds, rest = divmod(abs(nanoseconds), 1_000_000_000)
    return (seconds, rest) if nanoseconds >= 0 else (-seconds, -rest)


def format_duration(value: timedelta) -> str:
    """Seconds with 0, 3, 6 or 9 decimals and an "s", exactly: "600s", "0.500s"."""
    seconds, nanoseconds = seconds_and_nanoseconds(value)
    sign, fraction = "-" if seconds < 0 or nanoseconds < 0 else "", f"{abs(nanoseconds):09d}"
    while fraction.endswith("000"):
        fraction = fraction[:-3]
    return f"{sign}{abs(seconds)}{fraction and '.'}{fraction}s"


def format_units(value: timedelta, *, most: int | None = None) -> str:
    """A duration as people write it, exactly: "7d", "1m30s", "0.5s".

    `most`: of the units from the largest one on, so many at most, and whole seconds: "3d4h".
    """
    left, found = value // timedelta(microseconds=1), list[str]()
    if most is not None:
        left = max(left - left % 1_000_000, 0)
    for name, unit in (("d", 86_400), ("h", 3_600), ("m", 60)):
        count, left = divmod(left, unit * 1_000_000)
        if count or found:
            found.append(f"{count}{name}" if count else "")
    if left or found:
        found.append(f"{left / 1_000_000:.6f}".rstrip("0").rstrip(".") + "s" if left else "")
    return "".join(found[:most]) or "0s"


def parse_duration(text: str, field: str) -> timedelta:
    """A duration such as "600s" or "0.5s", to the microsecond.  Raises InvalidArgument that names the field."""
    return parse_exact_duration(text, field).microseconds_alone


def parse_exact_duration(text: str, field: str) -> Duration:
    """A duration with its nanoseconds.  Raises InvalidArgument that names the field."""
    match = _DURATION.fullmatch(text)
    if match is None or int(match[2]) > 315_576_000_000:  # protobuf's bound: about 10,000 years
        raise InvalidArgument(f"Invalid value at '{field}': {text[:100]!r} is not a duration such as \"600s\".")
    fraction = int((match[3] or "").ljust(9, "0"))
    sign = -1 if match[1] else 1
    microseconds = int(match[2]) * 1_000_000 + fraction // 1000
    return Duration(microseconds=sign * microseconds, nanoseconds=sign * (fraction % 1000))
