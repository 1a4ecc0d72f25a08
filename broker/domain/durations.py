"""Durations as the API prints them."""

from datetime import timedelta


def format_duration(value: timedelta) -> str:
    """Seconds with 0, 3 or 6 decimals and an "s", exactly: "600s", "0.500s"."""
    sign = "-" if value < timedelta(0) else ""
    seconds, microseconds = divmod(abs(value) // timedelta(microseconds=1), 1_000_000)
    if microseconds == 0:
        return f"{sign}{seconds}s"
    if microseconds % 1000 == 0:
        return f"{sign}{seconds}.{microseconds // 1000:03d}s"
    return f"{sign}{seconds}.{microseconds:06d}s"
