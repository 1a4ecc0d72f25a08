"""Parses the attribute by which a publisher limits the time to live of a message, on topics with this extension
(J3).
"""

from collections.abc import Sequence
from datetime import timedelta

from broker.model.durations import format_duration, parse_duration
from broker.model.errors import InvalidArgument
from broker.model.message import NewMessage

TTL = "broker-ttl"
MAX_TTL = timedelta(days=31)  # as long as a topic retains messages at most


def times_to_live(messages: Sequence[NewMessage | None]) -> list[timedelta | None] | None:
    """Returns how long after its publish time each message of a request may be delivered.

    None: as long as it is retained; None in place of the list: that is so of all.  Raises InvalidArgument that
    names the message, the attribute and the value.
    """
    found = [
        None if message is None or (text := message.attributes.get(TTL)) is None else _time_to_live(text, index)
        for index, message in enumerate(messages)
    ]
    return found if any(found) else None


def _time_to_live(text: str, index: int) -> timedelta:
    where = f"messages[{index}].attributes.{TTL}"
    ttl = parse_duration(text[:100], where)
    if not timedelta(0) < ttl <= MAX_TTL:
        raise InvalidArgument(
            f"Invalid value at '{where}': {text[:100]!r} is not above 0s and at most {format_duration(MAX_TTL)}."
        )
    return ttl
