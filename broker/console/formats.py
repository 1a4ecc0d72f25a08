"""Numbers as pages show them.  Ages, sizes, times and names are those of the command line (client/words.py)."""

import re

_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)")


def number(value: float | str) -> str:
    """Return a count with separators of thousands."""
    return f"{int(value):,}"


def rate(value: float | None) -> str:
    """Return a number a second with at most three digits after the point; "" for None."""
    return "" if value is None else f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def latency(duration: str) -> str:
    """Return a duration of the API in milliseconds, or in seconds from ten on."""
    seconds = float(duration.removesuffix("s"))
    return f"{seconds:,.1f} s" if seconds >= 10 else f"{seconds * 1000:,.0f} ms"


def share(part: float, whole: float) -> str:
    """Return a part in percent: "<1 %" of what is not nothing."""
    percent = 100 * part / whole if whole else 0.0
    return "<1 %" if 0 < percent < 1 else f"{percent:.0f} %"


def moments(sentence: str) -> list[str]:
    """Split a sentence of the API at its times: every other part is a time."""
    return _TIME.split(sentence)
