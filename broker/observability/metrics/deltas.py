"""Reads what all processes of a broker have counted since the last reading, by the names of resources."""

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from broker.observability.metrics.book import CounterBook

_AT_A_TIME = 64  # entries that are compared, and read in one step: some 0.3 ms
_STEP_COST = 150_000  # of a step, in the unit of LoopTurns

Counted = tuple[str, int]  # the name of a resource, and the number of a counter


@dataclass(slots=True)
class _Seen:
    """The last reading of a kind: the names of its entries, and by process their slots, _AT_A_TIME entries
    together.
    """

    names: list[str]
    slots: list[list[bytes]]
    entry_bytes: int
    version: int


class CounterDeltas:
    """Compares the counters of a book with their values at the last reading.  Costs the processes that count
    nothing.
    """

    def __init__(self, book: CounterBook, counters: Mapping[str, Sequence[tuple[int, int]]]) -> None:
        """`counters`: by kind the slots of the counters to read, each with a number for the caller.

        Counts from before this call are not part of any delta.
        """
        self._book = book
        self._slots = {kind: itemgetter(*(slot for slot, _ in pairs)) for kind, pairs in counters.items()}
        self._numbers = {kind: [number for _, number in pairs] for kind, pairs in counters.items()}
        self._seen: dict[str, _Seen] = {}
        for kind in counters:
            entry_bytes = len(book.written(kind, 0, first=1, last=1))
            seen = self._seen[kind] = _Seen(
                [""], [[] for _ in range(book.processes)], entry_bytes, book.version(kind)
            )
            self._read_names(kind)
            for process, groups in enumerate(seen.slots):
                groups[:] = [self._written(kind, process, number) for number in range(len(groups))]

    def read(self) -> Generator[int, None, Counter[Counted]]:
        """Reads what was counted since the last reading, in steps; each yield is the cost of the next step."""
        found: Counter[Counted] = Counter()
        for kind, seen in self._seen.items():
            self._read_names(kind)
            for process, groups in enumerate(seen.slots):
                for number in range(len(groups)):
                    if self._written(kind, process, number) != groups[number]:
                        yield _STEP_COST
                        now = self._written(kind, process, number)
                        self._add(kind, number, now=now, before=groups[number], found=found)
                        groups[number] = now
        return found

    def _add(self, kind: str, group: int, *, now: bytes, before: bytes, found: Counter[Counted]) -> None:
        seen, slots_of, numbers = self._seen[kind], self._slots[kind], self._numbers[kind]
        names = seen.names[1 + group * _AT_A_TIME :]
        for name, start in zip(names, range(0, len(now), seen.entry_bytes), strict=False):
            end = start + seen.entry_bytes
            if not name or now[start:end] == before[start:end]:
                continue  # a process that still counts for a deleted resource counts in an entry that is free
            counted, known = (slots_of(memoryview(each)[start:end].cast("Q").tolist()) for each in (now, before))
            if counted != known:
                for number, new, old in zip(numbers, counted, known, strict=True):
                    if new != old:
                        found[name, number] += new - old if new > old else new  # fewer: the entry was emptied

    def _written(self, kind: str, process: int, group: int) -> bytes:
        """Returns a copy, because the process that writes the slots does not wait."""
        first = 1 + group * _AT_A_TIME
        last = min(first + _AT_A_TIME - 1, self._book.capacity)
        return bytes(self._book.written(kind, process, first=first, last=last))

    def _read_names(self, kind: str) -> None:
        """Reads the new names, or all names if some have changed.  An entry with another name counts from 0."""
        seen, book = self._seen[kind], self._book
        version = book.version(kind)
        if version != seen.version:
            seen.version = version
            for entry in range(1, len(seen.names)):
                if (name := book.name(kind, entry)) != seen.names[entry]:
                    seen.names[entry] = name
                    self._forget(seen, entry)
        seen.names += [book.name(kind, entry) for entry in range(len(seen.names), book.taken(kind) + 1)]
        for process, groups in enumerate(seen.slots):
            while len(groups) * _AT_A_TIME < len(seen.names) - 1:
                groups.append(bytes(len(self._written(kind, process, len(groups)))))

    def _forget(self, seen: _Seen, entry: int) -> None:
        group, place = divmod(entry - 1, _AT_A_TIME)
        start = place * seen.entry_bytes
        for groups in seen.slots:
            before = groups[group]
            groups[group] = before[:start] + bytes(seen.entry_bytes) + before[start + seen.entry_bytes :]
