"""Google's limits that apply to topics, subscriptions, snapshots and ack deadlines alike."""

import re
from collections.abc import Mapping
from datetime import timedelta

from broker.model.durations import format_duration
from broker.model.errors import InvalidArgument

MIN_RETENTION, MAX_RETENTION = timedelta(minutes=10), timedelta(days=31)  # of messages
MIN_SECONDS, MAX_SECONDS = 10, 600  # of a subscription and of a stream; a message's own may be less: 0 is a nack
MAX_NACK_DELAY = timedelta(hours=24)  # an extension (A4)
MAX_LABELS = 64  # Google's quota
# Lower-case letters of any script, digits, _ and -; a key starts with a letter and is not empty.
_KEY = re.compile(r"(?![\d_-])[\w-]{1,63}")
_VALUE = re.compile(r"[\w-]{0,63}")


def check_labels(labels: Mapping[str, str]) -> None:
    """Raises InvalidArgument that names the label."""
    if len(labels) > MAX_LABELS:
        raise InvalidArgument(f"labels has {len(labels)} entries, the maximum is {MAX_LABELS}.")
    for key, value in labels.items():
        if not _KEY.fullmatch(key) or key != key.lower():
            raise InvalidArgument(
                f"labels has an invalid key ({key[:80]!r}): 1 to 63 lower-case letters, digits, _ and -, "
                "beginning with a letter."
            )
        if not _VALUE.fullmatch(value) or value != value.lower():
            raise InvalidArgument(
                f"labels[{key!r}] has an invalid value ({value[:80]!r}): at most 63 lower-case letters, digits, "
                "_ and -."
            )


def check_retention(retention: timedelta) -> None:
    """Raises InvalidArgument unless the message retention is between 10 minutes and 31 days."""
    if not MIN_RETENTION <= retention <= MAX_RETENTION:
        raise InvalidArgument(
            f"message_retention_duration out of bounds. You passed {format_duration(retention)} in the request, "
            "but the value must be between 600s and 2678400s."
        )


def check_ack_deadline(seconds: int) -> None:
    """Raises InvalidArgument unless a subscription can have this ack deadline."""
    _check(seconds, MIN_SECONDS)


def check_new_ack_deadline(seconds: int) -> None:
    """Raises InvalidArgument unless an outstanding message can have this ack deadline, from now on."""
    _check(seconds, 0)


def check_stream_ack_deadline(seconds: int) -> None:
    """Raises InvalidArgument unless a stream can have this ack deadline."""
    if not MIN_SECONDS <= seconds <= MAX_SECONDS:
        raise InvalidArgument(
            f"stream_ack_deadline_seconds must be between {MIN_SECONDS} and {MAX_SECONDS} seconds "
            f"(stream_ack_deadline_seconds={seconds})"
        )


def check_nack_delay(delay: timedelta) -> None:
    """Raises InvalidArgument unless a nack can have this delay: 0 to 24 h."""
    if not timedelta(0) <= delay <= MAX_NACK_DELAY:
        raise InvalidArgument(
            f"Invalid delay given (delay={format_duration(delay)}). "
            f"The delay must be between 0 and {MAX_NACK_DELAY.total_seconds():.0f} seconds."
        )


def _check(seconds: int, least: int) -> None:
    if not least <= seconds <= MAX_SECONDS:
        raise InvalidArgument(
            f"Invalid ack deadline given (ack_deadline={seconds}). "
            f"The ack deadline must be between {least} and {MAX_SECONDS} seconds."
        )
