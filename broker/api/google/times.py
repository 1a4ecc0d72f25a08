"""Converts durations and times from and to google.protobuf's messages."""

from datetime import UTC, datetime, timedelta
from typing import Any

from broker.api.generated.messages import Duration, Timestamp
from broker.model import durations as exact
from broker.model.errors import InvalidArgument

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_SECONDS = 315_576_000_000  # of a duration; protobuf's bound: about 10,000 years


def to_timedelta(duration: Any, field: str) -> exact.Duration:
    """A google.protobuf.Duration.  Raises InvalidArgument that names the field."""
    seconds, nanos = duration.seconds, duration.nanos
    if abs(seconds) > _MAX_SECONDS or abs(nanos) >= 1_000_000_000 or seconds * nanos < 0:
        raise InvalidArgument(f"Invalid value at '{field}': seconds={seconds}, nanos={nanos} is not a duration.")
    sign = -1 if seconds < 0 or nanos < 0 else 1
    microseconds, nanoseconds = divmod(abs(seconds) * 1_000_000_000 + abs(nanos), 1000)
    return exact.Duration(microseconds=sign * microseconds, nanoseconds=sign * nanoseconds)


def to_datetime(timestamp: Any, field: str) -> datetime:
    """A google.protobuf.Timestamp, to the microsecond.  Raises InvalidArgument that names the field."""
    try:
        if not 0 <= timestamp.nanos < 1_000_000_000:
            raise ValueError
        return _EPOCH + timedelta(seconds=timestamp.seconds, microseconds=timestamp.nanos // 1000)
    except (ValueError, OverflowError):
        raise InvalidArgument(
            f"Invalid value at '{field}': seconds={timestamp.seconds}, nanos={timestamp.nanos} is not a time."
        ) from None


def from_timedelta(value: timedelta) -> Any:
    """google.protobuf.Duration."""
    seconds, nanos = exact.seconds_and_nanoseconds(value)
    return Duration(seconds=seconds, nanos=nanos)


def from_datetime(moment: datetime) -> Any:
    """google.protobuf.Timestamp in milliseconds, as the service gives its times."""
    milliseconds = (moment - _EPOCH) // timedelta(milliseconds=1)
    return Timestamp(seconds=milliseconds // 1000, nanos=milliseconds % 1000 * 1_000_000)
