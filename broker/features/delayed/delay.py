"""Parses the attribute by which a publisher schedules a message, on topics with this extension (J1)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from broker.model.durations import parse_duration
from broker.model.errors import InvalidArgument
from broker.model.message import NewMessage
from broker.model.timestamps import format_timestamp, parse_timestamp

DELIVER_AT, DELAY = "broker-deliver-at", "broker-delay"
MAX_DELAY = timedelta(days=31)  # as long as a topic retains messages at most


@dataclass(frozen=True, slots=True)
class ScheduledMessage:
    """A message that waits until `due_at`.  `attributes`: JSON text, None if it has none.  `data`: as much of
    it as was read (None: nothing); `data_size`: the length of all of it.
    """

    shard_id: int
    id_seq: int
    due_at: datetime
    accepted_at: datetime
    ordering_key: str | None
    attributes: str | None
    data: bytes | None
    data_size: int


def due_times(messages: Sequence[NewMessage | None], now: datetime) -> list[datetime | None] | None:
    """Returns when to deliver each message of a request (None: at once); None if all are to be delivered at once.

    A time that has passed is at once: a publisher's clock may be behind.  Raises InvalidArgument that names the
    message, the attribute and the value.
    """
    found = [
        None if message is None or not message.attributes else _due_time(message.attributes, index, now)
        for index, message in enumerate(messages)
    ]
    return found if any(found) else None


def _due_time(attributes: Mapping[str, str], index: int, now: datetime) -> datetime | None:
    at, delay = attributes.get(DELIVER_AT), attributes.get(DELAY)
    if at is None and delay is None:
        return None
    where = f"messages[{index}].attributes.{DELAY if at is None else DELIVER_AT}"
    if at is not None and delay is not None:
        raise InvalidArgument(
            f"messages[{index}] has both of {DELIVER_AT} and {DELAY} ({at[:100]!r}, {delay[:100]!r}): "
            "only one can be given."
        )
    if at is not None:
        due_at = parse_timestamp(at[:100], where)
    else:
        due_at = now + max(min(parse_duration((delay or "")[:100], where), 2 * MAX_DELAY), -MAX_DELAY)
    return check_due(due_at, now, where, at or delay or "")


def check_due(due_at: datetime, now: datetime, where: str, given: str) -> datetime | None:
    """None if it is due already.  Raises InvalidArgument for a time that is too far ahead."""
    if due_at <= now:
        return None
    if due_at > now + MAX_DELAY:
        raise InvalidArgument(
            f"Invalid value at '{where}': {given[:100]!r} is more than {MAX_DELAY.days} days ahead; the last that "
            f"can be given now is {format_timestamp(now + MAX_DELAY)}."
        )
    return due_at
