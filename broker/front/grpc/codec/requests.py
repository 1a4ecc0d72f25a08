"""What the requests of all methods have in common."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf.message import DecodeError

from broker.domain.errors import InvalidArgument
from broker.domain.names import check_shape
from broker.domain.page import Page, parse_page
from broker.front.generated.messages import Duration, Timestamp

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MAX_SECONDS = 315_576_000_000  # of a duration; protobuf's bound: about 10,000 years


def decode_request(message_class: Any, body: bytes) -> Any:
    """Raises InvalidArgument."""
    try:
        return message_class.FromString(body)
    except DecodeError as error:
        name = message_class.DESCRIPTOR.full_name
        raise InvalidArgument(f"The request is not a valid {name} in protobuf's encoding.") from error


def resource_name(name: str, collection: str) -> str:
    """The name of a resource that is to exist ("topics", …).  Raises InvalidArgument for what is none."""
    check_shape(name, collection)
    return name


def project_name(name: str) -> str:
    """Raises InvalidArgument."""
    check_shape(name)
    return name


def page_of(request: Any) -> Page:
    """The page of a list request.  Raises InvalidArgument."""
    return parse_page(request.page_size, request.page_token)


def mask_paths(request: Any) -> Sequence[str]:
    return list(request.update_mask.paths)


def given_fields(message: Any) -> list[str]:
    """The fields that are set to other than their default, or present."""
    return [field.name for field, _ in message.ListFields()]


def to_timedelta(duration: Any, field: str) -> timedelta:
    """A google.protobuf.Duration, to the microsecond.  Raises InvalidArgument that names the field."""
    seconds, nanos = duration.seconds, duration.nanos
    if abs(seconds) > _MAX_SECONDS or abs(nanos) >= 1_000_000_000 or seconds * nanos < 0:
        raise InvalidArgument(f"Invalid value at '{field}': seconds={seconds}, nanos={nanos} is not a duration.")
    return timedelta(seconds=seconds, microseconds=int(nanos / 1000))


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
    seconds, microseconds = divmod(value // _MICROSECOND, 1_000_000)
    return Duration(seconds=seconds, nanos=microseconds * 1000)


def from_datetime(moment: datetime) -> Any:
    """google.protobuf.Timestamp in milliseconds, as the service gives its times."""
    milliseconds = (moment - _EPOCH) // timedelta(milliseconds=1)
    return Timestamp(seconds=milliseconds // 1000, nanos=milliseconds % 1000 * 1_000_000)
