"""Durations with nanoseconds, beside columns whose intervals end with microseconds.

`exact_durations` has the text of each that has nanoseconds, by the name of its column.  A text counts only as long
as it agrees with its column, so that a statement may change the column alone.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import TypeVar

from broker.domain.durations import Duration, format_duration, parse_exact_duration

Stored = TypeVar("Stored", timedelta, timedelta | None)


def exact_texts(columns: Mapping[str, timedelta | None]) -> dict[str, str] | None:
    """Returns the durations to store beside `columns`, by the names of their columns; None: nothing."""
    exact = {
        name: format_duration(value)
        for name, value in columns.items()
        if isinstance(value, Duration) and value.nanoseconds
    }
    return exact or None


def exactly(stored: Stored, name: str, texts: Mapping[str, str] | None) -> Stored:
    """The duration of the column `name`, as it was given."""
    if stored is None or not texts or name not in texts:
        return stored
    exact = parse_exact_duration(texts[name], name)
    return exact if exact.microseconds_alone == stored else stored
