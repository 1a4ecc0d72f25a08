"""Times as the API prints them."""

from datetime import UTC, datetime


def format_timestamp(moment: datetime) -> str:
    """RFC 3339 in UTC with milliseconds, as the service prints it."""
    utc = moment.astimezone(UTC)
    return f"{utc:%Y-%m-%dT%H:%M:%S}.{utc.microsecond // 1000:03d}Z"
