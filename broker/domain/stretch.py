"""Stretches: messages of the log as a claim counts and shares them out, before their bodies are read."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

# One attempt may cover this many times as many sequences as it holds; a wider one would make its next
# redelivery read past too many messages that are not its own.
_MAX_SPREAD = 4


class Stretch(NamedTuple):
    """Messages of one batch that stand next to each other.

    `length` is how many; `batch` the last sequence of their batch, which with `publish_time` names it; `size` the
    bytes that all of them count, MESSAGE_OVERHEAD each included.  From `expires_at` on (None: never) none goes out.
    """

    first_seq: int
    length: int
    publish_time: datetime
    batch: int
    size: int
    ordering_key: str | None = None
    expires_at: datetime | None = None

    def is_past(self, now: datetime) -> bool:
        """Whether their time is over."""
        return self.expires_at is not None and self.expires_at <= now

    @property
    def end(self) -> int:
        """The sequence just past the last."""
        return self.first_seq + self.length

    def first(self, length: int) -> "Stretch":
        """So many from the front; they count their part of the bytes."""
        return self._replace(length=length, size=self.size * length // self.length)

    def after(self, length: int) -> "Stretch":
        """The others."""
        size = self.size - self.size * length // self.length
        return self._replace(first_seq=self.first_seq + length, length=self.length - length, size=size)


def count_of(stretches: Iterable[Stretch]) -> int:
    """How many messages they are."""
    return sum([stretch.length for stretch in stretches])


def size_of(stretches: Iterable[Stretch]) -> int:
    """How many bytes they count."""
    return sum([stretch.size for stretch in stretches])


def just_past(stretch: Stretch) -> tuple[datetime, int]:
    """The position behind it."""
    return stretch.publish_time, stretch.end


def fitting(stretch: Stretch, max_messages: int, max_bytes: int, *, at_least: int) -> int:
    """How many messages from its front fit; `at_least` of them whatever their size."""
    fits = stretch.length if stretch.size <= max_bytes else max_bytes * stretch.length // stretch.size
    return min(max_messages, max(fits, at_least))


class Source:
    """Stretches that are used up from their front."""

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        self._rest = iter(stretches)
        self._next = next(self._rest, None)

    def take(self, max_messages: int, max_bytes: int, *, at_least: int) -> list[Stretch]:
        """As many messages as fit; `at_least` (0 or 1) whatever their size, for each must go out at some time."""
        taken: list[Stretch] = []
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

    def rest(self) -> list[Stretch]:
        """What is left; the source is empty then."""
        left = [] if self._next is None else [self._next, *self._rest]
        self._next = None
        return left


def drop_last(stretches: list[Stretch], number: int) -> None:
    """Take so many messages, not all of them, from the end; none if the number is not above 0."""
    while number > 0:
        last = stretches.pop()
        if last.length > number:
            stretches.append(last.first(last.length - number))
        number -= last.length


def close_runs(stretches: Sequence[Stretch]) -> Iterator[Sequence[Stretch]]:
    """Stretches in log order, split: redeliveries, and matches of a filter, may be anywhere in the log."""
    if stretches and stretches[-1].end - 1 - stretches[0].first_seq <= _MAX_SPREAD * count_of(stretches):
        yield stretches
        return
    run: list[Stretch] = []
    held = 0
    for stretch in stretches:
        if run and stretch.end - 1 - run[0].first_seq > _MAX_SPREAD * (held + stretch.length):
            yield run
            run, held = [], 0
        run.append(stretch)
        held += stretch.length
    if run:
        yield run


def multirange(stretches: Sequence[Stretch]) -> str:
    """Their sequences, ascending, as PostgreSQL writes an int8multirange."""
    if len(stretches) == 1:
        return f"{{[{stretches[0].first_seq},{stretches[0].end})}}"
    ranges: list[str] = []
    start = end = -1
    for stretch in stretches:
        if stretch.first_seq != end:
            if start >= 0:
                ranges.append(f"[{start},{end})")
            start = stretch.first_seq
        end = stretch.end
    if start >= 0:
        ranges.append(f"[{start},{end})")
    return "{" + ",".join(ranges) + "}"
