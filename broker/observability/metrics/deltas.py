"""What all processes of a broker have counted since the last reading, by the names of resources."""

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from broker.observability.metrics.book import CounterBook

_AT_A_TIME = 64  # entries that are compared, and read in one step: some 0.3 ms
_STEP_COST = 150_000  # of a step, in the unit of LoopTurns

Counted = tuple[str, int]  # the name of a resource, and the number of a column


@dataclass(slots=True)
class _Seen:
    """What was read last of the entries of a kind: their names, and the slots that each process writes."""

    names: list[str]
    slots: list[bytearray]
    version: int = 0
    size: int = field(default=0, kw_only=True)  # bytes of the slots of an entry


class CounterDeltas:
    """Compares the counters of a book with what they were.  Reading costs those that count nothing."""

    def __init__(self, book: CounterBook, columns: Mapping[str, Sequence[tuple[int, int]]]) -> None:
        """`columns`: by kind the slots of the counters to read, each with a number for the caller.

        What was counted before is no delta.
        """
        self._book = book
        self._slots = {kind: itemgetter(*(slot for slot, _ in pairs)) for kind, pairs in columns.items()}
        self._numbers = {kind: [number for _, number in pairs] for kind, pairs in columns.items()}
        self._seen = {kind: _Seen([""], [bytearray() for _ in range(book.processes)]) for kind in columns}
        for kind in columns:
            self._read_names(kind)
            for process, slots in enumerate(self._seen[kind].slots):
                slots[:] = self._written(kind, process, 1, len(self._seen[kind].names) - 1)

    def read(self) -> Generator[int, None, Counter[Counted]]:
        """What was counted since the last reading, in steps: each yield says what the next one costs."""
        found: Counter[Counted] = Counter()
        for kind, seen in self._seen.items():
            self._read_names(kind)
            last = len(seen.names) - 1
            for process in range(self._book.processes):
                for first in range(1, last + 1, _AT_A_TIME):
                    until = min(first + _AT_A_TIME - 1, last)
                    if self._written(kind, process, first, until) != self._before(seen, process, first, until):
                        yield _STEP_COST
                        self._add(kind, process, range(first, until + 1), found)
        return found

    def _add(self, kind: str, process: int, entries: range, found: Counter[Counted]) -> None:
        seen, slots_of, numbers = self._seen[kind], self._slots[kind], self._numbers[kind]
        for entry in entries:
            now, before = self._written(kind, process, entry, entry), self._before(seen, process, entry, entry)
            if now == before:
                continue
            counted, known = slots_of(memoryview(now).cast("Q").tolist()), slots_of(before.cast("Q").tolist())
            if counted != known:
                name = seen.names[entry]
                for number, new, old in zip(numbers, counted, known, strict=True):
                    if new != old:
                        found[name, number] += new - old if new > old else new  # fewer: the entry was emptied
            before[:] = now

    def _written(self, kind: str, process: int, first: int, last: int) -> bytes:
        """A copy: the process that writes it does not wait."""
        return bytes(self._book.written(kind, process, first=first, last=last))

    def _before(self, seen: _Seen, process: int, first: int, last: int) -> memoryview:
        return memoryview(seen.slots[process])[(first - 1) * seen.size : last * seen.size]

    def _read_names(self, kind: str) -> None:
        """The names that are new, or all, if some have changed: what had another name was counted from 0 on."""
        seen, book = self._seen[kind], self._book
        version, last = book.version(kind), book.taken(kind)
        seen.size = seen.size or len(self._written(kind, 0, 1, 1))
        if version != seen.version:
            seen.version = version
            for entry in range(1, len(seen.names)):
                if (name := book.name(kind, entry)) != seen.names[entry]:
                    seen.names[entry] = name
                    for slots in seen.slots:
                        slots[(entry - 1) * seen.size : entry * seen.size] = bytes(seen.size)
        for entry in range(len(seen.names), last + 1):
            seen.names.append(book.name(kind, entry))
            for slots in seen.slots:
                slots += bytes(seen.size)
