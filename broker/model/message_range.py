"""Message ranges: messages of the log as a claim counts and allocates them, before their bodies are read."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple


class MessageRange(NamedTuple):
    """Consecutive messages of one batch.

    `length` is how many; `batch` the last sequence of their batch, which with `publish_time` names it; `size` the
    bytes that all of them count, MESSAGE_OVERHEAD each included.  They expire at `expires_at` (None: never).
    """

    first_seq: int
    length: int
    publish_time: datetime
    batch: int
    size: int
    ordering_key: str | None = None
    expires_at: datetime | None = None

    def is_past(self, now: datetime) -> bool:
        """Whether the messages have expired."""
        return self.expires_at is not None and self.expires_at <= now

    @property
    def end(self) -> int:
        """The sequence just past the last."""
        return self.first_seq + self.length

    def first(self, length: int) -> "MessageRange":
        """The first `length` messages, with their part of the bytes."""
        return self._replace(length=length, size=self.size * length // self.length)

    def after(self, length: int) -> "MessageRange":
        """The messages behind the first `length`."""
        size = self.size - self.size * length // self.length
        return self._replace(first_seq=self.first_seq + length, length=self.length - length, size=size)


def count_of(ranges: Iterable[MessageRange]) -> int:
    """The number of messages."""
    return sum([each.length for each in ranges])


def size_of(ranges: Iterable[MessageRange]) -> int:
    """The bytes that the messages count."""
    return sum([each.size for each in ranges])


def multirange(ranges: Sequence[MessageRange]) -> str:
    """The text of the int8multirange of their sequences, which ascend."""
    if len(ranges) == 1:
        return f"{{[{ranges[0].first_seq},{ranges[0].end})}}"
    texts: list[str] = []
    start = end = -1
    for each in ranges:
        if each.first_seq != end:
            if start >= 0:
                texts.append(f"[{start},{end})")
            start = each.first_seq
        end = each.end
    if start >= 0:
        texts.append(f"[{start},{end})")
    return "{" + ",".join(texts) + "}"
