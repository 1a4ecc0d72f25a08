"""The record of deliveries: when each message of a subscription was acknowledged, at which attempt and by whom.

It is kept for every subscription, so it must cost very little.  A row holds what one author acknowledged of one
bucket of sequences since the last write, as a string of entries:

    age (8 bytes)   attempt (2)   out for (4)   ranges (2)   first, end (2 + 2) for each range

`age` is the time in microseconds from the ack to the writing of the row, `out for` the time in milliseconds from
the delivery to the ack.  Ranges are relative to the first sequence of the bucket.  An entry is one response, or the
part of it that one flush acknowledged.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain
from typing import NamedTuple

from broker.model.journal import BUCKET, Author, Entry, Event, by_bucket

_ENTRY = struct.Struct("<QHIH")
_BOUND = 2  # bytes
MAX_ROW_BYTES = 1_900  # a few rows fit a page, and none is moved out of line
ENTRY_BYTES = _ENTRY.size + 2 * _BOUND  # of one message that is alone in its entry
_MAX_BOUNDS = (MAX_ROW_BYTES - _ENTRY.size) // (2 * _BOUND) * 2  # of an entry
RECORD_HOURS = 24  # for which a record is kept at the least, by default
MAX_TEXT = 256  # characters of an author, and of an answer
_MAX_ATTEMPT, _MAX_OUT = 2**16 - 1, 2**32 - 1
_MILLISECOND = timedelta(milliseconds=1)
_MICROSECOND = timedelta(microseconds=1)
# The journal may have the same ack, at the time of its transaction.
_SAME_ACK = timedelta(seconds=10)


class By(NamedTuple):
    """The author of an ack, with the `answer` of a push endpoint, or why a transform dropped the message."""

    author: Author
    answer: str = ""


class AckedMessages(NamedTuple):
    """Messages that one statement has acknowledged of one row.  Times are in microseconds.

    `bounds`: the first sequence of each range and the one behind its last, ascending.
    """

    subscription_id: int
    by: By
    bounds: Sequence[int]
    attempt: int
    acked_at: int
    handed_out_at: int


class RecordRow(NamedTuple):
    """A row of the table; its `entries` lie in the bucket."""

    subscription_id: int
    bucket: int
    by: By
    entries: bytes


class Recorded(NamedTuple):
    """The record of one message in a row."""

    acked_at: datetime
    handed_out_at: datetime
    attempt: int
    by: By


@dataclass(slots=True)
class _OpenRow:
    entries: list[bytes] = field(default_factory=list)
    size: int = 0


class RecordRows:
    """Collects the rows of one shard that are written together, at `now` (microseconds)."""

    def __init__(self, now: int) -> None:
        self._now = now
        self._open: dict[tuple[int, int, By], _OpenRow] = {}
        self._full: list[RecordRow] = []

    def add(self, acked: AckedMessages) -> None:
        """Cuts it where buckets end, and where an entry would be too long."""
        bounds = acked.bounds
        bucket = bounds[0] // BUCKET
        if bucket == (bounds[-1] - 1) // BUCKET:
            self._add(acked, bucket, bounds)
            return
        for bucket, ranges in by_bucket(zip(bounds[::2], bounds[1::2], strict=True)):
            self._add(acked, bucket, [*chain.from_iterable(ranges)])

    def _add(self, acked: AckedMessages, bucket: int, bounds: Sequence[int]) -> None:
        age = max(self._now - acked.acked_at, 0)
        attempt = min(acked.attempt, _MAX_ATTEMPT)
        out = min(max(acked.acked_at - acked.handed_out_at, 0) // 1000, _MAX_OUT)
        base = bucket * BUCKET
        for first in range(0, len(bounds), _MAX_BOUNDS):
            some = [bound - base for bound in bounds[first : first + _MAX_BOUNDS]]
            packed = struct.pack(f"<{len(some)}H", *some)
            self._append(acked, bucket, _ENTRY.pack(age, attempt, out, len(some) // 2) + packed)

    def _append(self, acked: AckedMessages, bucket: int, entry: bytes) -> None:
        key = acked.subscription_id, bucket, acked.by
        row = self._open.get(key)
        if row is None:
            row = self._open[key] = _OpenRow()
        elif row.size + len(entry) > MAX_ROW_BYTES:
            self._full.append(RecordRow(*key, b"".join(row.entries)))
            row = self._open[key] = _OpenRow()
        row.entries.append(entry)
        row.size += len(entry)

    def rows(self) -> list[RecordRow]:
        """Returns all rows that were added."""
        return self._full + [RecordRow(*key, b"".join(row.entries)) for key, row in self._open.items()]


def find_in_row(entries: bytes, *, bucket: int, seq: int, recorded_at: datetime, by: By) -> Iterator[Recorded]:
    """Yields the records of a message in the entries of a row that was written at `recorded_at`."""
    offset, at = seq - bucket * BUCKET, 0
    while at < len(entries):
        age, attempt, out, count = _ENTRY.unpack_from(entries, at)
        at += _ENTRY.size
        bounds = struct.unpack_from(f"<{2 * count}H", entries, at)
        at += 2 * _BOUND * count
        if any(first <= offset < last for first, last in zip(bounds[::2], bounds[1::2], strict=True)):
            acked_at = recorded_at - age * _MICROSECOND
            yield Recorded(acked_at, acked_at - out * _MILLISECOND, attempt, by)


def with_recorded(entries: Sequence[Entry], recorded: Iterable[Recorded]) -> list[Entry]:
    """The entries of a journal and what the record has beside them, the oldest first."""
    attribution = [entry for entry in entries if entry.event is Event.ACKED]
    added: list[Entry] = []
    for each in recorded:
        if any(e.attempt == each.attempt and abs(e.time - each.acked_at) < _SAME_ACK for e in attribution):
            continue
        if not any(e.event is Event.HANDED_OUT and e.attempt == each.attempt for e in entries):
            added.append(Entry(each.handed_out_at, Event.HANDED_OUT, each.attempt, Author(), ""))
        added.append(Entry(each.acked_at, Event.ACKED, each.attempt, *each.by))
    return sorted([*entries, *added], key=lambda entry: entry.time) if added else list(entries)
