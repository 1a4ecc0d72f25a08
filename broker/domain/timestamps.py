"""Times as the API prints them."""

from datetime import UTC, datetime


def whole_milliseconds(moment: datetime) -> datetime:
    """As publish times are, and are shown: seeking to a time that a client was shown means that very message."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def format_timestamp(moment: datetime) -> str:
    """RFC 3339 in UTC with milliseconds, as the service prints it."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
