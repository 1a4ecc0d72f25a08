"""Times as the API prints them."""

from datetime import UTC, datetime


def format_timestamp(moment: datetime) -> str:
    """RFC 3339 in UTC with milliseconds, as the service prints it."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
