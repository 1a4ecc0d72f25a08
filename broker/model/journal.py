"""The journal of a subscription: what happened to its messages, and when (F3).

It is enabled by `extensions.journal`, for all messages, for a share of them, or for those that fail.  Seeks, dead
letters and expired messages are rare, and are recorded for every subscription.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import ClassVar, NamedTuple

from broker.model.durations import format_duration
from broker.model.errors import InvalidArgument

MIN_RETENTION, DEFAULT_RETENTION, MAX_RETENTION = timedelta(minutes=1), timedelta(days=7), timedelta(days=31)
MAX_ROWS = 1_000_000  # of a subscription: the oldest go first
BUCKET = 4_096  # sequences; a row's are of one bucket, so that those of a message are found by it
SPAN = -1  # the bucket of rows that may be about any sequence: of seeks
_MAX_RANGES = 128  # of a row: some two kilobytes

Range = tuple[int, int]  # sequences from the first to the second, without that


class JournalMode(StrEnum):
    """FAILURES: nacks, and whatever happens to a message after its first attempt has failed."""

    ALL = "ALL"
    FAILURES = "FAILURES"


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """The settings of a journal: what is written, for which share of the messages (above 0, to 1), for how long.

    A message is in the share or not: the record of one that is has no gaps.
    """

    IN_FULL: ClassVar = True

    mode: JournalMode
    sample: float = 1.0
    retention: timedelta = DEFAULT_RETENTION

    def includes(self, event: "Event", attempt: int) -> bool:
        """Whether that is written down of messages in the share, at their n-th attempt."""
        if self.mode is JournalMode.FAILURES:
            return attempt > 1 or event in _FAILURES
        return True

    def share_of(self, ranges: Sequence[Range]) -> Sequence[Range]:
        """Returns those of the sequences that are in the share."""
        if self.sample >= 1.0:
            return ranges
        below = int(self.sample * 2**32)
        return ranges_of(seq for low, high in ranges for seq in range(low, high) if _scattered(seq) < below)


DISCARDED, PURGED = "discarded", "purged"  # answers of an ACKED that an operator made
EDITED_INTO = "edited into "  # and a message id: the answer of a message whose dead letter was edited
TIME_TO_LIVE = "time to live"  # the answer of an EXPIRED whose message had a time to live


class Event(StrEnum):
    """An event of a message.

    RELEASED: it was given back before it reached a consumer, and the attempt does not count.  REPLAYED: a seek
    makes it to be delivered, again or after all.  EXPIRED: it was not acknowledged within the retention, or its
    time to live (the answer says which), and is not delivered any more.  REDRIVEN: it was dead-lettered, and has
    come back.  WITHDRAWN: it was a dead letter, whose message went back to where it came from; or, its dead letter
    was sent to the topic that the answer names, or edited, and became a message that the answer names.  RETRACTED:
    its publisher withdrew it, and it is not delivered any more.
    """

    HANDED_OUT = "HANDED_OUT"
    EXTENDED = "EXTENDED"
    NACKED = "NACKED"
    REJECTED = "REJECTED"
    RELEASED = "RELEASED"
    ACKED = "ACKED"
    DEAD_LETTERED = "DEAD_LETTERED"
    SKIPPED = "SKIPPED"
    REPLAYED = "REPLAYED"
    EXPIRED = "EXPIRED"
    REDRIVEN = "REDRIVEN"
    WITHDRAWN = "WITHDRAWN"
    RETRACTED = "RETRACTED"


_FAILURES = frozenset({Event.NACKED, Event.REJECTED})
SETTLING = frozenset(
    {
        *(Event.ACKED, Event.DEAD_LETTERED, Event.SKIPPED, Event.EXPIRED, Event.WITHDRAWN),
        Event.RETRACTED,
    }
)
# An ack of a key is taken back with what is before it.
UNSETTLING = frozenset({Event.REPLAYED, Event.REDRIVEN, Event.HANDED_OUT})


class Author(NamedTuple):
    """The author of an event: a principal, and an address or the name of a stream's client.

    Each is "" if it is not known.
    """

    principal: str = ""
    client: str = ""


NOBODY = Author()
PUSH = Author(client="push")
TRANSFORM = Author(client="transform")


class Attribution(NamedTuple):
    """The author of an event, and where it is recorded.

    `journal`: where it is written if the journal includes such events (None: the subscription has none).  `answer`:
    what an endpoint answered, or why a transform dropped the message.
    """

    journal: Journal | None
    author: Author = NOBODY
    answer: str = ""


UNKNOWN = Attribution(None)


class Row(NamedTuple):
    """A row of the journal: one event of messages of one bucket."""

    subscription_id: int
    bucket: int
    event: Event
    attempt: int
    seqs: str
    author: Author
    answer: str


class Entry(NamedTuple):
    """A journal entry of one message; `attempt` 0: the event is of no attempt."""

    time: datetime
    event: Event
    attempt: int
    author: Author
    answer: str


def check_journal(journal: Journal) -> None:
    """Raises InvalidArgument."""
    if not 0 < journal.sample <= 1:
        raise InvalidArgument(
            f"extensions.journal.sample must be above 0 and at most 1 (sample={journal.sample:g})."
        )
    if not MIN_RETENTION <= journal.retention <= MAX_RETENTION:
        raise InvalidArgument(
            f"extensions.journal.retention must be from {format_duration(MIN_RETENTION)} to "
            f"{format_duration(MAX_RETENTION)} (retention={format_duration(journal.retention)})."
        )


def settlement(entries: Iterable[Entry]) -> Entry | None:
    """Returns the entry that settled a message for good.

    `entries` are its entries, oldest first.  None: none of them did.
    """
    last: Entry | None = None
    for entry in entries:
        if entry.event in SETTLING:
            last = entry
        elif entry.event in UNSETTLING:
            last = None
    return last


def rows_of(
    journal: Journal | None,
    subscription_id: int,
    event: Event,
    attempt: int,
    ranges: Sequence[Range],
    *,
    author: Author = NOBODY,
    answer: str = "",
    span: bool = False,
) -> Iterator[Row]:
    """The rows for an event of these sequences, ascending.  `journal` None: it is written down whatever was chosen.

    `span`: they may be any number, and make rows that are not of one bucket.
    """
    if journal is not None:
        if not journal.includes(event, attempt):
            return
        ranges = journal.share_of(ranges)
    for bucket, some in [(SPAN, ranges)] if span else by_bucket(ranges):
        for first in range(0, len(some), _MAX_RANGES):
            seqs = _multirange(some[first : first + _MAX_RANGES])
            yield Row(subscription_id, bucket, event, attempt, seqs, author, answer)


def ranges_of(seqs: Iterable[int]) -> list[Range]:
    """Returns the ranges of ascending sequences."""
    ranges: list[Range] = []
    start = end = -1
    for seq in seqs:
        if seq != end:
            if start >= 0:
                ranges.append((start, end))
            start = seq
        end = seq + 1
    if start >= 0:
        ranges.append((start, end))
    return ranges


def without(ranges: Sequence[Range], others: Sequence[Range]) -> list[Range]:
    """Returns the parts of `ranges` that are not in `others`.

    Both are ascending, and neither overlaps within itself.
    """
    left: list[Range] = []
    for low, high in ranges:
        first = bisect_right(others, low, key=lambda each: each[1])
        last = bisect_left(others, high, key=lambda each: each[0])
        for taken_low, taken_high in others[first:last]:
            if low < taken_low:
                left.append((low, taken_low))
            low = taken_high
        if low < high:
            left.append((low, high))
    return left


def _scattered(seq: int) -> int:
    """A number below 2**32 that neighbours have nothing in common in (Knuth's multiplicative hash)."""
    return seq * 2_654_435_761 % 2**32


def by_bucket(ranges: Iterable[Range]) -> Iterator[tuple[int, Sequence[Range]]]:
    """The ranges of each bucket, cut where one ends."""
    buckets: dict[int, list[Range]] = {}
    for low, high in ranges:
        while low < high:
            bucket = low // BUCKET
            end = min(high, (bucket + 1) * BUCKET)
            buckets.setdefault(bucket, []).append((low, end))
            low = end
    yield from buckets.items()


def _multirange(ranges: Iterable[Range]) -> str:
    return "{" + ",".join([f"[{low},{high})" for low, high in ranges]) + "}"
