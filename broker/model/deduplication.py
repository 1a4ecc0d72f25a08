"""How a topic deduplicates the messages that are published on it (J5)."""

from dataclasses import dataclass
from datetime import timedelta

from broker.model.durations import format_duration
from broker.model.errors import InvalidArgument

MIN_WINDOW, MAX_WINDOW = timedelta(seconds=1), timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Deduplication:
    """`window`: for so long after a message repeats of it are known; `content`: a message without an id is known by
    what is in it.
    """

    window: timedelta
    content: bool = False


def check_window(window: timedelta) -> timedelta:
    """Raises InvalidArgument."""
    if not MIN_WINDOW <= window <= MAX_WINDOW:
        raise InvalidArgument(
            f"Invalid value at 'extensions.deduplication.window': {format_duration(window)!r} is not between "
            f"{format_duration(MIN_WINDOW)} and {format_duration(MAX_WINDOW)}."
        )
    return window
