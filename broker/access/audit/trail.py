"""The audit log of a process: entries are noted here, and written in batches to the table and to a file (E5).

    a change ──► record: written before its answer is given
    a denial, a use of data ──► note: written within a second; what happens again meanwhile is counted

So a flood of denials is a statement a second, with a bounded number of rows, and holds nobody up.  While the table
cannot be written entries wait, up to MAX_WAITING of them; the file has them at once.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

from broker.domain.audit_entry import Audited, AuditEntry
from broker.domain.errors import BrokerError
from broker.store.access.audit_entries import insert_audit_entries
from broker.store.driver.database import Database
from broker.telemetry.log import reason
from broker.telemetry.state_changes import StateChanges

INTERVAL_SECONDS = 1.0  # within which equal entries are counted rather than written one by one
MAX_DISTINCT = 1_000  # of them, of denials and of data access; what is beyond is one entry
MAX_WAITING = 20_000  # entries of changes that wait for the table; some 10 MB
RECORD_SECONDS = 2.0  # that a change waits for its entry before it is answered all the same
BATCH = 1_000  # rows of a statement
OTHERS = "others"  # the method of what was not told apart

_TABLE, _FILE = "entries of the audit log in the table", "entries of the audit log in the file"


@dataclass(eq=False, slots=True)
class _Waiting:
    entry: AuditEntry
    written: asyncio.Future[None] | None = None


@dataclass(eq=False, slots=True)
class _Counted:
    times: int
    last: datetime


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
        self._counted: dict[Audited, _Counted] = {}
        self._unsaid = 0  # denials and uses of data that were not told apart
        self._waiting: list[_Waiting] = []
        self._lost = 0  # entries that found no room
        self._urgent = asyncio.Event()

    def note(self, what: Audited) -> None:
        """It happened; it is written within a second."""
        counted = self._counted.get(what)
        if counted is not None:
            counted.times += 1
            counted.last = self._now()
        elif len(self._counted) < MAX_DISTINCT:
            self._counted[what] = _Counted(1, self._now())
        else:
            self._unsaid += 1

    async def record(self, what: Audited) -> None:
        """Somebody has changed something: returns once that is written, or cannot be just now.

        The change has been made by then, so nothing is raised: what could not be written is tried again.
        """
        entry = _Waiting(AuditEntry(what, self._now()), asyncio.get_running_loop().create_future())
        if len(self._waiting) >= MAX_WAITING:
            self._lost += 1
            return
        self._waiting.append(entry)
        self._urgent.set()
        assert entry.written is not None
        with suppress(TimeoutError):
            async with asyncio.timeout(RECORD_SECONDS):
                await asyncio.shield(entry.written)

    async def run(self) -> None:
        """Write what there is, at once if somebody waits for it."""
        loop = asyncio.get_running_loop()
        due = loop.time() + INTERVAL_SECONDS
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._urgent.wait()
            self._urgent.clear()
            if loop.time() >= due:
                self._take_counted()
                due = loop.time() + INTERVAL_SECONDS
            await self.flush()

    async def close(self) -> None:
        """Write what is left."""
        self._take_counted()
        with suppress(BrokerError, TimeoutError):
            async with asyncio.timeout(RECORD_SECONDS):
                await self.flush()

    async def flush(self) -> None:
        """Write what waits.  Raises a BrokerError if the table cannot be written: it waits on."""
        while batch := self._waiting[:BATCH]:
            try:
                async with self._database.transaction() as connection:
                    await insert_audit_entries(connection, entries=[each.entry for each in batch])
            except BrokerError as error:
                what = f"{_TABLE} wait to be written"
                self._states.begins(_TABLE, "", what, reason(error))
                raise
            del self._waiting[: len(batch)]
            await self._append([each.entry for each in batch])
            for each in batch:
                if each.written is not None and not each.written.done():
                    each.written.set_result(None)
        lost, self._lost = self._lost, 0
        if lost:
            self._states.happens(_TABLE, "lost", f"{lost} {_TABLE} were not written", "too many waited")
        self._states.ends(_TABLE, "", f"{_TABLE} are written again")

    def _take_counted(self) -> None:
        counted, self._counted = self._counted, {}
        unsaid, self._unsaid = self._unsaid, 0
        entries = [AuditEntry(what, each.last, each.times) for what, each in counted.items()]
        if unsaid:
            entries.append(AuditEntry(Audited(method=OTHERS, resource="", code="UNKNOWN"), self._now(), unsaid))
        room = max(MAX_WAITING - len(self._waiting), 0)
        self._lost += len(entries[room:])
        self._waiting += map(_Waiting, entries[:room])

    async def _append(self, entries: Sequence[AuditEntry]) -> None:
        if self._path is None:
            return
        lines = b"".join(msgspec.json.encode(entry.as_json()) + b"\n" for entry in entries)
        try:
            await asyncio.to_thread(_append, self._path, lines)
        except OSError as error:
            self._states.begins(_FILE, "", f"{_FILE} are not written", f"{self._path}: {error.strerror}")
        else:
            self._states.ends(_FILE, "", f"{_FILE} are written again")


def _append(path: Path, lines: bytes) -> None:
    """All lines in one piece: other processes write to the file too."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
    try:
        os.write(file, lines)
    finally:
        os.close(file)
