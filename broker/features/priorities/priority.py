"""Parses the attribute by which a publisher states the priority of a message, on topics with levels of priority
(J4).
"""

from collections.abc import Mapping, Sequence

from broker.model.errors import InvalidArgument
from broker.model.message import NewMessage
from broker.model.priorities import Priorities

PRIORITY = "broker-priority"


def levels_of(messages: Sequence[NewMessage | None], priorities: Priorities) -> list[int] | None:
    """The level of each message of a request; None if all have the least urgent one.

    Raises InvalidArgument that names the message, the attribute and the value.
    """
    found = [
        priorities.least
        if message is None or PRIORITY not in message.attributes
        else _level(message.attributes[PRIORITY], message.ordering_key, index, priorities)
        for index, message in enumerate(messages)
    ]
    return found if any(level != priorities.least for level in found) else None


def level_of(attributes: Mapping[str, str], ordering_key: str, priorities: Priorities | None) -> int | None:
    """The level of what is published anew and cannot be refused; None, the least urgent one, also if what is given
    cannot be.
    """
    if priorities is None or ordering_key or PRIORITY not in attributes:
        return None
    return _read(attributes[PRIORITY], priorities)


def _level(given: str, ordering_key: str, index: int, priorities: Priorities) -> int:
    if ordering_key:
        raise InvalidArgument(
            f"messages[{index}] has an ordering key and the attribute {PRIORITY} ({given[:100]!r}): messages of a "
            "key come in their order, and have no priority."
        )
    level = _read(given, priorities)
    if level is None:
        raise InvalidArgument(
            f"Invalid value at 'messages[{index}].attributes.{PRIORITY}': {given[:100]!r} is not a level of the "
            f"topic, which are the whole numbers from 0, the most urgent one, to {priorities.least}."
        )
    return level


def _read(given: str, priorities: Priorities) -> int | None:
    level = int(given) if len(given) == 1 and given in "0123456789" else priorities.levels
    return level if level <= priorities.least else None
