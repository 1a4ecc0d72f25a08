"""The version of credentials and policies, which determines how long a process may use what it has cached.

A transaction that changes a credential or a policy also increments the version, records the projects of the change,
and notifies all processes.  Each process reads the version periodically, too, so that a lost notification or a
disconnected listener only delays the change.  If the version cannot be read, nothing that is cached is valid, and
calls are refused.

A change in a project invalidates only what is cached of that project.  Each cache keeps a Validity with every
entry, so that nothing has to be searched or copied when the version changes (docs/decisions/0080).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from weakref import WeakValueDictionary

from broker.access.versions.access_changes import AccessChanges, Versions
from broker.access.versions.version_rows import read_changes
from broker.db.driver.database import Connection, Database
from broker.db.driver.patient_connection import PatientConnection
from broker.model.errors import BrokerError, Unavailable

READ_SECONDS = 0.5  # between two reads of the version; a change holds within a second everywhere (E1)
STALE_SECONDS = 2.0  # after which what is known is believed no more
PATIENCE_SECONDS = 2.0  # for one check, and for a call that waits for it

_UNKNOWN = "Whether the caller may do that cannot be looked up. {}"
_LATE = "The database does not answer in time; try again."

Load = Callable[[AccessChanges], Awaitable[None]]
Watch = Callable[[AccessChanges], None]


class Validity:
    """Whether what was read about access in a project still holds.

    Take it before you read, and keep it beside what you have read.  It never holds again once it does not.
    """

    __slots__ = ("__weakref__", "holds")

    def __init__(self) -> None:
        self.holds = True


class AccessVersion:
    """`known`: the versions that all loaders have loaded.  `run` is a supervised worker."""

    def __init__(self, database: Database, *, ticks: Callable[[], float] = time.monotonic) -> None:
        """`ticks`: seconds, of a clock that only goes forward."""
        self._database = database
        self._ticks = ticks
        self.known = Versions(0, 0)
        self._read_at = float("-inf")  # when the last check that succeeded began
        self._loaders: list[Load] = []
        self._watchers: list[Watch] = []
        # By project.  An entry goes when nothing that was read refers to it any more.
        self._validities: WeakValueDictionary[str, Validity] = WeakValueDictionary()
        self._connection: PatientConnection | None = None  # owned by whoever has the lock
        self._lock = asyncio.Lock()
        self._hint = asyncio.Event()

    def before_change(self, load: Load) -> None:
        """Have `load(changes)` called, and waited for, before a new version counts as known.

        It may raise a BrokerError: then the version is not known, and it is called again with at least these
        changes.
        """
        self._loaders.append(load)

    def after_change(self, watch: Watch) -> None:
        """Call `watch(changes)` when a new version is known, to check callers again that were let in before."""
        self._watchers.append(watch)

    def validity(self, project: str) -> Validity:
        """Returns the validity of what is read about a project from now on.

        ABOVE_PROJECTS stands for everything that is in no project.
        """
        found = self._validities.get(project)
        if found is None:
            found = self._validities[project] = Validity()
        return found

    def changed(self) -> None:
        """Notes that there may be a new version."""
        self._hint.set()

    @property
    def is_fresh(self) -> bool:
        """Whether what is known may be believed now."""
        return self._ticks() - self._read_at < STALE_SECONDS

    async def check(self) -> None:
        """Be sure that what is known may be believed.  Raises Unavailable."""
        if not self.is_fresh:
            await self._refresh_in_time(unless_fresh=True)

    async def refresh(self) -> None:
        """Know of all changes that are committed now.  Raises Unavailable."""
        await self._refresh_in_time(unless_fresh=False)

    async def _refresh_in_time(self, *, unless_fresh: bool) -> None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS), self._lock:
                if not (unless_fresh and self.is_fresh):  # else another call's look has done
                    await self._refresh()
        except (BrokerError, TimeoutError) as error:
            seen = error.message if isinstance(error, BrokerError) else _LATE
            raise Unavailable(_UNKNOWN.format(seen)) from error

    async def run(self) -> None:
        """Checks the version for ever, and at once on a notification that it has changed."""
        try:
            while True:
                self._hint.clear()
                with suppress(Unavailable):  # calls say so
                    await self.refresh()
                with suppress(TimeoutError):
                    async with asyncio.timeout(READ_SECONDS):
                        await self._hint.wait()
        finally:
            await self._hang_up()

    async def _refresh(self) -> None:
        began = self._ticks()
        try:
            changes = await read_changes(await self._connected(), since=self.known)
            changed = changes.versions != self.known
            if changed:
                for load in self._loaders:
                    await load(changes)
        except BaseException:  # given up in the middle, too: nobody knows what the connection would say next
            await self._hang_up()
            raise
        if changed:
            self._invalidate(changes.projects)
        self.known, self._read_at = changes.versions, began
        if changed:
            for watch in self._watchers:
                watch(changes)

    def _invalidate(self, projects: frozenset[str] | None) -> None:
        for project in list(self._validities) if projects is None else projects:
            validity = self._validities.pop(project, None)
            if validity is not None:
                validity.holds = False

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = await self._database.dedicated_connection()
            self._connection.patience = PATIENCE_SECONDS
        return self._connection

    async def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
