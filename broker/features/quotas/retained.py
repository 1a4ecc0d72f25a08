"""Computes how many bytes the log of a shard retains, by spans of ten minutes of publish times (E4).

A log is read once from its first message that is needed, and later only its new messages.  So there is a number for
each span, and the retained bytes are the sum of the spans that are needed.
"""

from array import array
from collections.abc import Collection
from datetime import UTC, datetime, timedelta

SPAN_SECONDS = 600  # as read_kept.sql and sum_batches.sql have it
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SPAN = timedelta(seconds=SPAN_SECONDS)


def span_of(time: datetime) -> int:
    """The number of the span that a time is in."""
    return (time - _EPOCH) // _SPAN


class Tally:
    """The bytes of a shard's messages from a span on, as far as its log was read: to `publish_time`, `seq`."""

    __slots__ = ("_sizes", "first", "publish_time", "seq")

    def __init__(self, first: int) -> None:
        """Creates an empty tally; `first`: the span to begin with."""
        self.first = first
        self.publish_time, self.seq = _EPOCH + first * _SPAN, 0
        self._sizes = array("q")

    def add(self, span: int, size: int, *, publish_time: datetime, seq: int) -> None:
        """Batches of a span were read; the last of them is published then, and ends with that sequence."""
        index = span - self.first
        if index >= 0:
            self._sizes.extend([0] * (index + 1 - len(self._sizes)))
            self._sizes[index] += size
        self.publish_time, self.seq = max(self.publish_time, publish_time), max(self.seq, seq)

    def caught_up(self, head: int) -> None:
        """Records that all was read when the shard's head was this."""
        self.seq = max(self.seq, head)

    def forget_before(self, span: int) -> None:
        """Forgets spans before this one, which are not needed again."""
        if span > self.first:
            del self._sizes[: span - self.first]
            self.first = span

    def kept(self, since: int | None, spans: Collection[int]) -> int:
        """Bytes from a span on (None: there is none), and of those spans before it."""
        end = self.first + len(self._sizes)
        start = end if since is None else max(since, self.first)
        each = {span for span in spans if self.first <= span < min(start, end)}
        return sum(self._sizes[start - self.first :]) + sum(self._sizes[span - self.first] for span in each)
