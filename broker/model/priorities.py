"""The levels of priority that the messages of a topic may have (J4)."""

from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from broker.model.durations import format_duration
from broker.model.errors import InvalidArgument

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
