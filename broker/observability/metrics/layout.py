"""The layout of counters of a kind (topic, subscription, process): slots of 64 bits in a block of memory.

A slot is written by one process, by `block[slot] += 1`: about 0.1 µs, on the event loop, without a lock.  Seconds
are stored as whole microseconds.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

MICROSECONDS = 1e-6


@dataclass(frozen=True, slots=True)
class Family:
    """The metrics that are exposed under one name.

    `offset`: of its first slot; `values`: of the label, each with a slot.  A histogram has a slot for each of its
    `bounds` (inclusive, in units of `scale`), one for what is above, and one for the sum.
    """

    name: str
    help: str
    kind: Literal["counter", "gauge", "histogram"]
    offset: int
    label: str = ""
    values: Sequence[str] = ()
    bounds: Sequence[int] = ()
    scale: float = 1.0

    @property
    def slots(self) -> int:
        if self.kind == "histogram":
            return len(self.bounds) + 2
        return max(len(self.values), 1)


@dataclass(frozen=True, slots=True)
class Histogram:
    """The slots of one; `sums`: that of the sum."""

    offset: int
    bounds: Sequence[int]
    sums: int

    def observe(self, block: memoryview, value: int, count: int = 1) -> None:
        """Note a value, so many times."""
        block[self.offset + bisect_left(self.bounds, value)] += count
        block[self.sums] += value * count

    def observer(self, block: memoryview) -> Callable[[float], None]:
        """Returns a function that observes seconds, for a histogram in MICROSECONDS: as `observe`, in one call."""
        offset, bounds, sums = self.offset, self.bounds, self.sums

        def note(seconds: float) -> None:
            value = int(seconds * 1e6)
            block[offset + bisect_left(bounds, value)] += 1
            block[sums] += value

        return note

    def observe_all(self, block: memoryview, values: Sequence[int]) -> int:
        """Observes each value, at the cost of a few.  Returns their sum."""
        if len(values) < len(self.bounds):
            for value in values:
                block[self.offset + bisect_left(self.bounds, value)] += 1
        else:
            below, ordered = 0, sorted(values)  # most are of one bucket, or of a few beside each other
            last = bisect_left(self.bounds, ordered[-1])
            for index in range(bisect_left(self.bounds, ordered[0]), last):
                upto = bisect_right(ordered, self.bounds[index])
                block[self.offset + index] += upto - below
                below = upto
            block[self.offset + last] += len(ordered) - below
        total = sum(values)
        block[self.sums] += total
        return total


class Layout:
    """The families of a kind, in the order in which they were declared; each call gives what writes need."""

    def __init__(self) -> None:
        self.families: list[Family] = []
        self.slots = 0

    def counter(self, name: str, help_: str) -> int:
        """The slot of one that only grows.  `name` without `_total`."""
        return self._add(Family(name, help_, "counter", self.slots)).offset

    def gauge(self, name: str, help_: str) -> int:
        """The slot of one that goes up and down, and is 0 when a process begins."""
        return self._add(Family(name, help_, "gauge", self.slots)).offset

    def counters(
        self, name: str, help_: str, label: str, values: Sequence[str], *, scale: float = 1.0
    ) -> Mapping[str, int]:
        """The slots of one for each value of a label, in units of `scale` (MICROSECONDS, or 1)."""
        family = self._add(Family(name, help_, "counter", self.slots, label, values, scale=scale))
        return {value: family.offset + number for number, value in enumerate(values)}

    def histogram(self, name: str, help_: str, bounds: Sequence[int], *, scale: float = 1.0) -> Histogram:
        """`bounds` in whole units of `scale` (MICROSECONDS, or 1)."""
        family = self._add(Family(name, help_, "histogram", self.slots, bounds=bounds, scale=scale))
        return Histogram(family.offset, bounds, family.offset + len(bounds) + 1)

    def _add(self, family: Family) -> Family:
        self.families.append(family)
        self.slots += family.slots
        return family
