"""Durations as the API prints and reads them."""

import re
from datetime import timedelta

from broker.domain.errors import InvalidArgument

# [0-9], not \d: Python's \d and int() take the digits of any script, and int() takes 1_000 as well.
_DURATION = re.compile(r"(-?)([0-9]{1,12})(?:\.([0-9]{1,9}))?s")


def format_duration(value: timedelta) -> str:
    """Seconds with 0, 3 or 6 decimals and an "s", exactly: "600s", "0.500s"."""
    sign = "-" if value < timedelta(0) else ""
    seconds, microseconds = divmod(abs(value) // timedelta(microseconds=1), 1_000_000)
    if microseconds == 0:
        return f"{sign}{seconds}s"
    if microseconds % 1000 == 0:
        return f"{sign}{seconds}.{microseconds // 1000:03d}s"
    return f"{sign}{seconds}.{microseconds:06d}s"


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
    match = _DURATION.fullmatch(text)
    if match is None or int(match[2]) > 315_576_000_000:  # protobuf's bound: about 10,000 years
        raise InvalidArgument(f"Invalid value at '{field}': {text[:100]!r} is not a duration such as \"600s\".")
    fraction = int((match[3] or "").ljust(9, "0")[:6])
    value = timedelta(seconds=int(match[2]), microseconds=fraction)
    return -value if match[1] else value
