"""Urgent messages first: a publisher says how urgent by an attribute, on topics that have levels of it (J4)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from broker.domain.durations import format_duration
from broker.domain.errors import InvalidArgument
from broker.domain.message import NewMessage

PRIORITY = "broker-priority"
MIN_LEVELS, MAX_LEVELS = 2, 10  # so that a level is one digit
MIN_AGE, MAX_AGE = timedelta(milliseconds=100), timedelta(days=31)
MAX_WEIGHT = 1000


@dataclass(frozen=True, slots=True)
class Priorities:
    """A topic has so many `levels`: 0 is the most urgent one, and the last one is of all that say nothing.

    What is more urgent goes first, but for what has waited for the `age` (None: there is none) and goes beside it;
    or the levels share what is handed out by their `weights` (empty: they do not).
    """

    ALONE: ClassVar = "levels"

    levels: int
    age: timedelta | None = None
    weights: tuple[int, ...] = ()

    @property
    def least(self) -> int:
        """The level of what says nothing; it is in the shards that a topic without levels has."""
        return self.levels - 1


def check_priorities(priorities: Priorities) -> None:
    """Raises InvalidArgument for what no topic can have."""
    levels, age, weights = priorities.levels, priorities.age, priorities.weights
    if not MIN_LEVELS <= levels <= MAX_LEVELS:
        raise _invalid("", levels, f"is not a whole number of levels from {MIN_LEVELS} to {MAX_LEVELS}")
    if age is not None and not MIN_AGE <= age <= MAX_AGE:
        limits = f"{format_duration(MIN_AGE)} and {format_duration(MAX_AGE)}"
        raise _invalid(".age", format_duration(age), f"is not between {limits}")
    if weights and age is not None:
        raise _invalid(".weights", list(weights), "cannot be given beside an age")
    if weights and (len(weights) != levels or not all(1 <= weight <= MAX_WEIGHT for weight in weights)):
        what = f"is not a whole number from 1 to {MAX_WEIGHT} for each of {levels} levels"
        raise _invalid(".weights", str(list(weights))[:100], what)


def _invalid(where: str, given: object, what: str) -> InvalidArgument:
    return InvalidArgument(f"Invalid value at 'extensions.priorities{where}': {given} {what}.")


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
