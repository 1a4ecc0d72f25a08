"""The audit log of a process: collects entries, and writes them in batches to the table and to a file (E5).

    a change ──► record: written before its answer is given
    a denial, another failed call, a use of data ──► note: counted and sampled, written within a second

A flood of denials therefore costs one statement a second with a bounded number of rows, and delays no call.  While
the table cannot be written, entries wait in two queues, so that denials never displace changes.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

from broker.access.audit.audit_entry import Audited, AuditEntry
from broker.access.audit.audit_rows import insert_audit_entries
from broker.access.audit.noted_calls import INTERVAL_SECONDS, NotedCalls
from broker.db.driver.database import Database
from broker.model.errors import BrokerError, os_reason
from broker.observability.log import reason
from broker.observability.state_changes import StateChanges

MAX_WAITING = 20_000  # entries of changes that wait for the table; some 10 MB
MAX_NOTED = 5_000  # other entries that wait for it
RECORD_SECONDS = 2.0  # that a change waits for its entry before it is answered all the same
BATCH = 1_000  # rows of a statement

_TABLE, _FILE = "entries of the audit log in the table", "entries of the audit log in the file"


@dataclass(eq=False, slots=True)
class _Waiting:
    entry: AuditEntry
    written: asyncio.Future[None]


class AuditTrail:
    """`run` is a supervised worker."""

    def __init__(
        self, database: Database, *, now: Callable[[], datetime], path: str = "", states: StateChanges
    ) -> None:
        """`path`: of the file of JSON lines, which may be renamed and is then made anew; empty: there is none."""
        self._database = database
        self._now = now
        self._path = Path(path) if path else None
        self._states = states
        self._calls = NotedCalls()
        self._waiting: list[_Waiting] = []  # changes
        self._noted: list[AuditEntry] = []  # the rest
        self._lost = 0  # entries that found no room
        self._urgent = asyncio.Event()
        self._writing = asyncio.Lock()

    def note(self, what: Audited) -> None:
        """Notes a call that ended without a change; it is written within a second, or counted."""
        self._calls.add(what, self._now())

    async def record(self, what: Audited) -> None:
        """Records a change.  Returns once the entry is written, or cannot be just now.

        The change has been made by then, so nothing is raised: an entry that could not be written is tried again.
        """
        entry = _Waiting(AuditEntry(what, self._now(), is_change=True), asyncio.get_running_loop().create_future())
        if len(self._waiting) >= MAX_WAITING:
            self._lost += 1
            return
        self._waiting.append(entry)
        self._urgent.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(RECORD_SECONDS):
                await asyncio.shield(entry.written)

    async def run(self) -> None:
        """Writes the waiting entries, at once if a call waits for its entry."""
        loop = asyncio.get_running_loop()
        due = loop.time() + INTERVAL_SECONDS
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._urgent.wait()
            self._urgent.clear()
            if loop.time() >= due:
                self._take_noted()
                due = loop.time() + INTERVAL_SECONDS
            await self.flush()

    async def close(self) -> None:
        """Write what is left."""
        self._take_noted(in_window=True)
        with suppress(BrokerError, TimeoutError):
            async with asyncio.timeout(RECORD_SECONDS):
                await self.flush()

    async def flush(self) -> None:
        """Write all entries, changes first.  Raises a BrokerError if the table cannot be written: they wait on."""
        async with self._writing:
            await self._write_all()
        lost, self._lost = self._lost, 0
        if lost:
            self._states.happens(_TABLE, "lost", f"{lost} {_TABLE} were not written", "too many waited")
        self._states.ends(_TABLE, "", f"{_TABLE} are written again")

    async def _write_all(self) -> None:
        while changes := self._waiting[:BATCH]:
            entries = [each.entry for each in changes]
            await self._insert(entries)
            del self._waiting[: len(changes)]
            await self._append(entries)
            for each in changes:
                if not each.written.done():
                    each.written.set_result(None)
        while entries := self._noted[:BATCH]:
            await self._insert(entries)
            del self._noted[: len(entries)]
            await self._append(entries)

    async def _insert(self, entries: Sequence[AuditEntry]) -> None:
        try:
            async with self._database.transaction() as connection:
                await insert_audit_entries(connection, entries=entries)
        except BrokerError as error:
            self._states.begins(_TABLE, "", f"{_TABLE} wait to be written", reason(error))
            raise

    def _take_noted(self, *, in_window: bool = False) -> None:
        entries = self._calls.take(self._now(), in_window=in_window)
        left = max(MAX_NOTED - len(self._noted), 0)
        self._lost += len(entries[left:])
        self._noted += entries[:left]

    async def _append(self, entries: Sequence[AuditEntry]) -> None:
        if self._path is None:
            return
        lines = b"".join(msgspec.json.encode(entry.as_json()) + b"\n" for entry in entries)
        try:
            await asyncio.to_thread(_append, self._path, lines)
        except OSError as error:
            self._states.begins(_FILE, "", f"{_FILE} are not written", f"{self._path}: {os_reason(error)}")
        else:
            self._states.ends(_FILE, "", f"{_FILE} are written again")


def _append(path: Path, lines: bytes) -> None:
    """Appends all lines in one piece: other processes write to the file too."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
    try:
        os.write(file, lines)
    finally:
        os.close(file)
