"""Reports on the broker itself."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from broker.core.context.storage_alarm import StorageAlarm
from broker.core.process.database_clock import DatabaseClock
from broker.db.driver.database import Database
from broker.db.schema.fleet import Fleet, read_fleet
from broker.db.schema.schema_state import DatabaseState, DatabaseUnreachable, inspect
from broker.db.schema.server_settings import ServerSettings, read_server_settings
from broker.features.inspect.fleet.database_checks import Check
from broker.features.inspect.fleet.finding import ERROR, OK, Finding
from broker.features.inspect.fleet.rows import list_processes
from broker.features.inspect.fleet.shown_setting import ShownSetting
from broker.model.errors import Unavailable
from broker.model.page import Page, cut_page

RUNNING_WITHIN = timedelta(seconds=10)  # processes report every few seconds
_KEPT = timedelta(seconds=5)  # answers of checks, which connect to the database several times

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BrokerProcess:
    """A broker process.

    `is_running`: it reported within RUNNING_WITHIN.  `revision`: the newest schema revision that it knows.
    """

    process_id: str
    seen_at: datetime
    is_running: bool
    revision: str
    database_connections: int


@dataclass(frozen=True, slots=True)
class DatabaseReport:
    """The state of the database, as `broker doctor` reads it."""

    state: DatabaseState
    server: ServerSettings
    fleet: Fleet


@dataclass(frozen=True, slots=True)
class KnownFinding:
    """A finding and the time at which this process first made it (`since`), if all checks since then
    repeated it.
    """

    finding: Finding
    since: datetime


class FleetService:
    """Reports on the broker.  It changes nothing.

    A process runs its checks one at a time, and caches the findings for some seconds.
    """

    def __init__(
        self,
        database: Database,
        clock: DatabaseClock,
        storage: StorageAlarm,
        *,
        database_url: str,
        checks: Sequence[Check],
        settings: Sequence[ShownSetting],
    ) -> None:
        self._database = database
        self._clock = clock
        self._storage = storage
        self._database_url = database_url
        self._checks = checks
        self.settings = settings
        self._lock = asyncio.Lock()
        self._known: Sequence[KnownFinding] = ()
        self._checked_at: datetime | None = None

    async def list_processes(self, page: Page) -> tuple[Sequence[BrokerProcess], str]:
        """Returns a page of the processes that reported in the last minutes, and the token of the next page."""
        now = self._clock.now()
        async with self._database.transaction() as connection:
            rows = await list_processes(connection, page)
        found = [
            BrokerProcess(
                process_id=row.process_id,
                seen_at=row.seen_at,
                is_running=now - row.seen_at < RUNNING_WITHIN,
                revision=row.version,
                database_connections=row.database_connections,
            )
            for row in rows
        ]
        return cut_page(found, page.size, lambda each: each.process_id)

    async def read_database(self) -> DatabaseReport:
        """Returns the state of the database.  Raises Unavailable."""

        def read() -> DatabaseReport:
            state = inspect(self._database_url, self._database.schema)
            fleet = read_fleet(self._database_url, state.schema)
            return DatabaseReport(state, read_server_settings(self._database_url), fleet)

        return await self._in_thread(read)

    async def list_findings(self) -> Sequence[KnownFinding]:
        """Returns the findings of all checks, errors first."""
        async with self._lock:
            now = self._clock.now()
            if self._checked_at is None or now - self._checked_at > _KEPT:
                found = await asyncio.to_thread(lambda: [each for check in self._checks for each in check()])
                self._known = self._with_times([*self._with_disk(found), *self._of_storage()], now)
                self._checked_at = now
            return self._known

    async def _in_thread(self, read: Callable[[], T]) -> T:
        async with self._lock:
            try:
                return await asyncio.to_thread(read)
            except DatabaseUnreachable as error:
                raise Unavailable(f"The database cannot be read: {error}") from error

    def _with_disk(self, found: Sequence[Finding]) -> Sequence[Finding]:
        """Returns the findings with what this process knows of the disk of the embedded PostgreSQL, which does not
        say where its data is.
        """
        disk = self._storage.disk
        if disk is None:
            return found
        measured = Finding("disk", OK, disk.measured)
        return [measured if each.check == "disk" else each for each in found]

    def _of_storage(self) -> Sequence[Finding]:
        paused = [
            Finding("storage", ERROR, "publishing is paused", each, "broker docs runbooks disk")
            for each in self._storage.warnings()
        ]
        return paused or [Finding("storage", OK, "no storage limit pauses publishing")]

    def _with_times(self, found: Sequence[Finding], now: datetime) -> Sequence[KnownFinding]:
        since = {(each.finding.check, each.finding.state): each.since for each in self._known}
        known = [KnownFinding(each, since.get((each.check, each.state), now)) for each in found]
        return sorted(known, key=lambda each: _SEVEREST_FIRST.index(each.finding.state))


_SEVEREST_FIRST = ("error", "unknown", "warning", "ok")
