"""Numbers, durations, sizes, times and names as pages show them.

Numbers are exact ("2,713"), an age has its two largest units ("4 m 12 s"), and a time is in UTC; a script shows it
in the viewer's time zone.
"""

from datetime import datetime

_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def leaf(name: str) -> str:
    """Return the id of a resource: "orders" of "projects/shop/topics/orders"."""
    return name.rpartition("/")[2]


def number(value: float | str) -> str:
    """Return a count with separators of thousands."""
    return f"{int(value):,}"


def seconds_of(duration: str) -> float:
    """Return the seconds of a duration of the API, such as "4.218414s"."""
    return float(duration.removesuffix("s"))


def rate(value: float | None) -> str:
    """Return a number a second with at most three digits after the point; "" for None."""
    return "" if value is None else f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def age(duration: str | float | None) -> str:
    """Return a duration of the API, or seconds, in its two largest units; "" for None."""
    if duration is None:
        return ""
    seconds = seconds_of(duration) if isinstance(duration, str) else duration
    if seconds < 1:
        return f"{round(seconds * 1000)} ms"
    left, parts = int(seconds), []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}")
        elif parts:
            break
    return " ".join(parts[:2])


def size(count: float | str) -> str:
    """Return a number of bytes with its decimal unit."""
    value = float(count)
    if value < 1000:
        return f"{int(value)} B"
    for unit in ("kB", "MB", "GB"):
        value /= 1000
        if value < 1000:
            return f"{value:.1f} {unit}"
    return f"{value / 1000:.1f} TB"


def moment(timestamp: str) -> str:
    """Return a timestamp of the API in UTC, to the second."""
    return f"{datetime.fromisoformat(timestamp):%Y-%m-%d %H:%M:%S} UTC"
