"""Reads what was typed into the fields of forms, by the rules of the commands' options.  Each raises Misuse."""

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from broker.client import words
from broker.client.stop import Misuse


def text(given: str, _: str) -> str:
    """Read a text as it is; the API checks it."""
    return given


def number(given: str, label: str) -> float:
    try:
        found = float(given)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise Misuse(f"{label} must be a number, not {given!r}")
    return found


def whole_number(given: str, label: str) -> int:
    try:
        return int(given)
    except ValueError:
        raise Misuse(f"{label} must be a whole number, not {given!r}") from None


def ids(given: str, _: str) -> list[str]:
    """Read ids with line ends, commas or spaces between them."""
    return given.replace(",", " ").split()


def lines(given: str, _: str) -> list[str]:
    """Read the lines that are not empty."""
    return [line.strip() for line in given.splitlines() if line.strip()]


def pairs(given: str, label: str) -> dict[str, str]:
    """Read lines of KEY=VALUE."""
    return words.pairs(lines(given, label), label)


def pair_lines(values: Mapping[str, Any]) -> str:
    """Return pairs as `pairs` reads them."""
    return "\n".join(f"{key}={value}" for key, value in sorted(values.items()))


def moment(given: str, label: str, now: datetime) -> str:
    """Read a time, "now", or an age such as "1h".  A time without a zone is in UTC."""
    try:
        has_zone = datetime.fromisoformat(given).tzinfo is not None
    except ValueError:
        has_zone = True  # it is no time, or none in this form
    return words.time_text(given if has_zone else f"{given}Z", label, now)
