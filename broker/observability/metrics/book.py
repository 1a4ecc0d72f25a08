"""The shared memory in which all processes of a broker count, each in a part of its own.

It belongs to the parent, so the counts of a worker that is killed are not lost, and its successor continues in the
same part.  The process that answers a scrape reads all parts, so one scrape covers the whole broker.

    names:   by kind, how many were ever taken, their version (odd while some are emptied); then `capacity` entries:
             when it was first seen to be gone (nanoseconds of the monotonic clock; 0: it is there), the length of
             the name (0: the entry is free), name                (changed under a lock on the file)
    blocks:  by kind, process and entry: the slots of its layout  (written by that process alone, without a lock)
    emptied: by kind, the sum of the entries beyond `series` that were emptied  (changed under the lock)

All numbers are words of eight bytes that are stored one by one, because others read them without a lock:
`struct.pack_into` writes zeros first, and a name that seems to be free for a moment is a lost count.

Entry 0 of each kind is OTHER, which counts for names without an entry because all are taken.  The entry of a
deleted resource is cleared REUSE_SECONDS after the deletion was first seen, when no process remembers its place any
more.

The first `series` entries have series of their own in a scrape, which shows the sum of all others as OTHER.  That
sum never decreases, because it keeps the counts of cleared entries.
"""

import fcntl
import mmap
import os
import tempfile
import threading
import time
import weakref
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import reduction
from typing import Any

from broker.observability.metrics.layout import Layout

OTHER = "other"
REUSE_SECONDS = 120.0
SERIES = 1_000  # entries of a kind that have series of their own in a scrape
CAPACITY = 20_000  # entries of a kind; the file is sparse, so that what is not used takes no room
_MOST_READS = 10  # of a process that is killed while it empties entries their version stays odd
_SLOT_BYTES = 8
_NAME_AT = 2 * _SLOT_BYTES  # in an entry, and the size of what precedes the entries of a kind
_ENTRY_BYTES = 512  # no name that follows the rules is longer; what is, is OTHER


@dataclass(slots=True)
class _Index:
    """The names of a kind, as a process knows them: a search through a thousand took half a millisecond."""

    entries: dict[str, int] = field(default_factory=dict)
    free: list[int] = field(default_factory=list)  # those that were emptied
    taken: int = 0  # the entries up to this one have been read
    changed: int = 0


class CounterBook:
    """Counters of `processes` that are started from one parent, by name.  Picklable for those alone."""

    def __init__(
        self,
        layouts: Mapping[str, Layout],
        *,
        processes: int = 1,
        capacity: int = CAPACITY,
        series: int = SERIES,
        _file: int | None = None,
    ) -> None:
        """`capacity`: names of each kind that have counters of their own; `series`: those that have series, too."""
        self._layouts = layouts
        self.processes = processes
        self.capacity = capacity
        self.series = min(series, capacity)
        self._entries = capacity + 1
        self._names_at: dict[str, int] = {}
        self._blocks_at: dict[str, int] = {}
        size = 0
        for kind, layout in layouts.items():
            self._names_at[kind] = size
            size += _NAME_AT + self._entries * _ENTRY_BYTES
            self._blocks_at[kind] = size
            size += (processes * self._entries + 1) * layout.slots * _SLOT_BYTES
        self._file = _new_file(size) if _file is None else _file
        weakref.finalize(self, os.close, self._file)
        self._map = mmap.mmap(self._file, size)
        self._words = memoryview(self._map).cast("Q")
        self._lock = threading.Lock()
        self._indexes = {kind: _Index() for kind in layouts}
        if _file is None:
            for kind in layouts:
                self._write_name(kind, 0, OTHER)

    def __reduce__(self) -> Any:
        return _opened, (
            self._layouts,
            self.processes,
            self.capacity,
            self.series,
            reduction.DupFd(self._file),
        )

    def block(self, kind: str, process: int, entry: int) -> memoryview:
        """Returns the slots of an entry of a process, which alone writes them."""
        slots = self._layouts[kind].slots
        start = self._blocks_at[kind] + (process * self._entries + entry) * slots * _SLOT_BYTES
        return memoryview(self._map)[start : start + slots * _SLOT_BYTES].cast("Q")

    def written(self, kind: str, process: int, *, first: int, last: int) -> memoryview:
        """Returns the slots of the entries from `first` to `last`, one entry after the other."""
        slots = self._layouts[kind].slots
        start = self._blocks_at[kind] + (process * self._entries + first) * slots * _SLOT_BYTES
        return memoryview(self._map)[start : start + (last - first + 1) * slots * _SLOT_BYTES]

    def entry(self, kind: str, name: str) -> int:
        """Returns the entry in which `name` is counted from now on; 0 if there is no more room."""
        if len(name.encode()) > _ENTRY_BYTES - _NAME_AT:
            return 0
        index = self._indexes[kind]
        if self._is_full_without(kind, name, index):
            return 0
        with self._locked():
            self._read_new_names(kind, index)
            entry = index.entries.get(name, 0)
            if entry:
                self._mark(kind, entry, 0)
                return entry
            if index.free:
                entry = index.free.pop()
                index.changed += 2
            elif index.taken < self.capacity:
                entry = index.taken = index.taken + 1
            else:
                return 0
            self._write_name(kind, entry, name)
            self._set_head(kind, index.taken, index.changed)
            index.entries[name] = entry
            return entry

    def _is_full_without(self, kind: str, name: str, index: "_Index") -> bool:
        """Returns whether there is no room for a new name.

        It takes no lock, so that a publish does not pay for ten thousand other names that have no room.
        """
        if index.free or index.taken < self.capacity or name in index.entries:
            return False
        return self._head(kind) == (index.taken, index.changed)

    def _read_new_names(self, kind: str, index: "_Index") -> None:
        """Reads the names that other processes have added or emptied since the last call."""
        taken, changed = self._head(kind)
        if changed != index.changed:
            index.entries.clear()
            index.free.clear()
            index.taken, index.changed = 0, changed
        for entry in range(index.taken + 1, taken + 1):
            _, name = self._read_name(kind, entry)
            if name:
                index.entries[name] = entry
            else:
                index.free.append(entry)
        index.taken = taken

    def names(self, kind: str) -> Iterator[tuple[str, int]]:
        """Yields all counted names, with their entries."""
        for entry in range(self.taken(kind) + 1):
            if name := self.name(kind, entry):
                yield name, entry

    def name(self, kind: str, entry: int) -> str:
        """Returns the name that an entry counts; "" if the entry is free."""
        return self._read_name(kind, entry)[1]

    def taken(self, kind: str) -> int:
        """Returns the last entry that was ever taken."""
        return self._head(kind)[0]

    def version(self, kind: str) -> int:
        """Returns a number that grows whenever an entry that was taken once gets another name, or none."""
        return self._head(kind)[1]

    def totals(self, kind: str, entry: int) -> list[int]:
        """Returns the slots of an entry, summed over all processes."""
        blocks = [self.block(kind, process, entry) for process in range(self.processes)]
        return blocks[0].tolist() if len(blocks) == 1 else [sum(slots) for slots in zip(*blocks, strict=True)]

    def totals_of_other(self, kind: str) -> list[int]:
        """Returns the sum of all entries that have no series of their own; reads it again if entries are emptied
        meanwhile.
        """
        for _ in range(_MOST_READS):
            version = self.version(kind)
            blocks = [self.totals(kind, 0), self._emptied(kind).tolist()]
            blocks += [self.totals(kind, entry) for entry in range(self.series + 1, self.taken(kind) + 1)]
            if not version % 2 and version == self.version(kind):
                break
        return [sum(slots) for slots in zip(*blocks, strict=True)]

    def keep_only(self, kind: str, names: Collection[str]) -> None:
        """Empties the entries of names that are not among these and were first missed more than
        REUSE_SECONDS ago.
        """
        now = time.monotonic_ns()  # the same in all processes
        gone: list[int] = []
        with self._locked():
            for entry in range(1, self.taken(kind) + 1):
                gone_since, name = self._read_name(kind, entry)
                if not name:
                    continue
                if name in names:
                    if gone_since:
                        self._mark(kind, entry, 0)
                elif not gone_since:
                    self._mark(kind, entry, now)
                elif now - gone_since > REUSE_SECONDS * 1e9:
                    gone.append(entry)
            if gone:
                taken, version = self._head(kind)
                self._set_head(kind, taken, version | 1)
                for entry in gone:
                    self._empty(kind, entry)
                self._set_head(kind, taken, (version | 1) + 1)

    def clear_gauges(self, process: int) -> None:
        """Sets the gauges of a process that begins to 0, since nothing is open in it yet."""
        for kind, layout in self._layouts.items():
            gauges = [family.offset for family in layout.families if family.kind == "gauge"]
            for _, entry in self.names(kind) if gauges else ():
                block = self.block(kind, process, entry)
                for slot in gauges:
                    block[slot] = 0

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._lock:
            fcntl.lockf(self._file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN)

    def _head(self, kind: str) -> tuple[int, int]:
        """Returns the number of entries that were ever taken, and their version."""
        at = self._names_at[kind] // _SLOT_BYTES
        return self._words[at], self._words[at + 1]

    def _set_head(self, kind: str, taken: int, version: int) -> None:
        at = self._names_at[kind] // _SLOT_BYTES
        self._words[at], self._words[at + 1] = taken, version

    def _emptied(self, kind: str) -> memoryview:
        return self.block(kind, self.processes, 0)

    def _offset(self, kind: str, entry: int) -> int:
        return self._names_at[kind] + _NAME_AT + entry * _ENTRY_BYTES

    def _read_name(self, kind: str, entry: int) -> tuple[int, str]:
        at = self._offset(kind, entry)
        gone_since, length = self._words[at // _SLOT_BYTES], self._words[at // _SLOT_BYTES + 1]
        return gone_since, self._map[at + _NAME_AT : at + _NAME_AT + length].decode() if length else ""

    def _write_name(self, kind: str, entry: int, name: str) -> None:
        at, raw = self._offset(kind, entry), name.encode()
        self._map[at + _NAME_AT : at + _NAME_AT + len(raw)] = raw
        self._mark(kind, entry, 0)
        self._words[at // _SLOT_BYTES + 1] = len(raw)  # last: then it is there

    def _mark(self, kind: str, entry: int, gone_since: int) -> None:
        self._words[self._offset(kind, entry) // _SLOT_BYTES] = gone_since

    def _empty(self, kind: str, entry: int) -> None:
        self._mark(kind, entry, 0)
        self._words[self._offset(kind, entry) // _SLOT_BYTES + 1] = 0
        if entry > self.series:
            self._keep_sum(kind, entry)
        for process in range(self.processes):
            block = self.block(kind, process, entry)
            for slot in range(len(block)):
                block[slot] = 0

    def _keep_sum(self, kind: str, entry: int) -> None:
        emptied, totals = self._emptied(kind), self.totals(kind, entry)
        for family in self._layouts[kind].families:
            if family.kind != "gauge":
                for slot in range(family.offset, family.offset + family.slots):
                    emptied[slot] += totals[slot]


def project_of(name: str) -> str:
    """Returns the project of the full name of a resource; "" of OTHER."""
    return "" if name == OTHER else name.split("/")[1]


def _opened(layouts: Mapping[str, Layout], processes: int, capacity: int, series: int, handle: Any) -> CounterBook:
    """Opens the book in a child process."""
    return CounterBook(layouts, processes=processes, capacity=capacity, series=series, _file=handle.detach())


def _new_file(size: int) -> int:
    """Creates a file without a name; unused parts of it take no room.  Returns its descriptor.

    It is in memory where the system has such files and permits them (`vm.memfd_noexec` may not): on a disk the
    first write to each page waits for the journal of the file system.
    """
    with suppress(AttributeError, OSError):
        in_memory = os.memfd_create("counters")
        os.ftruncate(in_memory, size)
        return in_memory
    with tempfile.TemporaryFile() as file:
        file.truncate(size)
        return os.dup(file.fileno())
