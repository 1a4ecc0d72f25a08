"""The filters that a subscription had before its filter was changed, which still decide about earlier messages."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from broker.model.timestamps import whole_milliseconds

MAX_EARLIER = 20  # filters that a subscription keeps, of times from which the log still has messages


@dataclass(frozen=True, slots=True)
class EarlierFilter:
    """A filter ("": all messages match) that decides about messages published before `until`, except those that an
    even earlier one decides about.
    """

    filter: str
    until: datetime


@dataclass(frozen=True, slots=True)
class NewestFilter:
    """The compiled filter for all messages published at or after `since` (core/filtering/jsonpath.py)."""

    since: datetime
    filter_path: str | None = None
    body_path: str | None = None


def filter_at(newest: str, earlier: Sequence[EarlierFilter], publish_time: datetime) -> str:
    """The filter that decides about a message published at this time; `earlier` is in the order of time."""
    return next((each.filter for each in earlier if publish_time < each.until), newest)


def change_time(last_publish_times: Iterable[datetime], now: datetime) -> datetime:
    """Returns when a new filter begins to apply.

    It is later than the last message of each shard, no earlier than now, and a whole millisecond, as publish times
    are.
    """
    behind = (whole_milliseconds(last) + timedelta(milliseconds=1) for last in last_publish_times)
    return max([whole_milliseconds(now), *behind])


@dataclass(frozen=True, slots=True)
class FilterComparison:
    """A comparison of two filters on the newest `scanned` messages of a topic.

    The present filter matches `before` of them, the wanted one `after`, and both filters match `both`.
    """

    scanned: int = 0
    before: int = 0
    after: int = 0
    both: int = 0

    def __add__(self, other: "FilterComparison") -> "FilterComparison":
        return FilterComparison(
            self.scanned + other.scanned,
            self.before + other.before,
            self.after + other.after,
            self.both + other.both,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterChange:
    """The effect of a change of a subscription's filter, or (with a `comparison`) of one that was not made.

    `effective_time`: messages published then or later are decided by `filter`; None: nothing was changed.
    """

    filter: str
    previous: str
    effective_time: datetime | None = None
    comparison: FilterComparison | None = None

    @property
    def is_change(self) -> bool:
        """Whether the filter is not what it was."""
        return self.filter != self.previous
