"""Message ranges: messages of the log as a claim counts and allocates them, before their bodies are read."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

# One attempt may cover this many times as many sequences as it holds; a wider one would make its next
# redelivery read past too many messages that are not its own.
_MAX_SPREAD = 4


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


def just_past(messages: MessageRange) -> tuple[datetime, int]:
    """The position behind the last of these messages."""
    return messages.publish_time, messages.end


def fitting(messages: MessageRange, max_messages: int, max_bytes: int, *, at_least: int) -> int:
    """How many messages from its front fit; `at_least` of them whatever their size."""
    fits = messages.length if messages.size <= max_bytes else max_bytes * messages.length // messages.size
    return min(max_messages, max(fits, at_least))


class Source:
    """Message ranges that are used up from their front."""

    def __init__(self, ranges: Sequence[MessageRange]) -> None:
        self._rest = iter(ranges)
        self._next = next(self._rest, None)

    def take(self, max_messages: int, max_bytes: int, *, at_least: int) -> list[MessageRange]:
        """Take as many messages as fit; `at_least` (0 or 1) whatever their size: each must be delivered once."""
        taken: list[MessageRange] = []
        while self._next is not None and max_messages > 0:
            whole = self._next
            if whole.length > max_messages or whole.size > max_bytes:
                count = fitting(whole, max_messages, max_bytes, at_least=at_least)
                if count <= 0:
                    break
                if count < whole.length:
                    taken.append(whole.first(count))
                    self._next = whole.after(count)
                    break
            taken.append(whole)
            self._next = next(self._rest, None)
            max_messages, max_bytes, at_least = max_messages - whole.length, max_bytes - whole.size, 0
        return taken

    def rest(self) -> list[MessageRange]:
        """Take all messages that are left."""
        left = [] if self._next is None else [self._next, *self._rest]
        self._next = None
        return left


def drop_last(ranges: list[MessageRange], number: int) -> None:
    """Remove so many messages from the end, fewer than there are; none if `number` is 0 or less."""
    while number > 0:
        last = ranges.pop()
        if last.length > number:
            ranges.append(last.first(last.length - number))
        number -= last.length


def close_runs(ranges: Sequence[MessageRange]) -> Iterator[Sequence[MessageRange]]:
    """Split messages in log order where their sequences lie far apart: redeliveries, and matches of a filter."""
    if ranges and ranges[-1].end - 1 - ranges[0].first_seq <= _MAX_SPREAD * count_of(ranges):
        yield ranges
        return
    run: list[MessageRange] = []
    held = 0
    for each in ranges:
        if run and each.end - 1 - run[0].first_seq > _MAX_SPREAD * (held + each.length):
            yield run
            run, held = [], 0
        run.append(each)
        held += each.length
    if run:
        yield run


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
