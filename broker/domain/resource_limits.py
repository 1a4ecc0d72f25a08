"""Ack deadlines: Google's bounds, each in the words of the call that they are for."""

from datetime import timedelta

from broker.domain.durations import format_duration
from broker.domain.errors import InvalidArgument

MIN_SECONDS, MAX_SECONDS = 10, 600  # of a subscription and of a stream; a message's own may be less: 0 is a nack
MAX_NACK_DELAY = timedelta(hours=24)  # an extension (A4)


def check_ack_deadline(seconds: int) -> None:
    """Raises InvalidArgument unless a subscription can have this ack deadline."""
    _check(seconds, MIN_SECONDS)


def check_new_ack_deadline(seconds: int) -> None:
    """Raises InvalidArgument unless a message that is out can have this ack deadline, from now on."""
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
