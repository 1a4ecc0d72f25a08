"""Migrates while brokers are running: limits waits for locks, repeats them, and reports what blocks them.

A statement that waits for a lock on a table blocks all later ones: behind an ALTER that waits for a forgotten
transaction, all publishes wait as well.  So it waits only shortly, lets the others proceed, and tries again.
"""

import logging
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType

import psycopg
from psycopg.errors import DeadlockDetected, LockNotAvailable
from sqlalchemy.exc import DBAPIError

from broker.db.driver.connection_parameters import connection_parameters

logger = logging.getLogger(__name__)

APPLICATION_NAME = "broker migrate"
_CHECK_SECONDS = 0.1
_REPORT_SECONDS = 60.0
_BLOCKING = """
    SELECT other.pid, other.application_name, clock_timestamp() - other.xact_start
    FROM pg_stat_activity AS ours
    CROSS JOIN LATERAL unnest(pg_blocking_pids(ours.pid)) AS blocking (pid)
    JOIN pg_stat_activity AS other ON other.pid = blocking.pid
    WHERE ours.datname = current_database() AND ours.application_name = %s
    ORDER BY other.xact_start
    LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class Patience:
    """The time limits of a migration that waits for a lock, in seconds.

    It waits `lock_seconds` for the lock, then lets others pass for `pause_seconds`, and tries for `total_seconds`.
    """

    lock_seconds: float = 2.0  # a publish is refused when the flush before it takes 3
    pause_seconds: float = 3.0
    total_seconds: float = 300.0  # since a lock was first unavailable


class LockHeld(Exception):
    """A lock that a migration needs is held and not released; the message says by whom."""


class MigrationUnderWay(Exception):
    """A migration of this database is under way in another process."""


def migrate_patiently(attempt: Callable[[], None], database_url: str, patience: Patience) -> None:
    """`attempt()`, until it no longer fails for a lock.  Raises LockHeld."""
    give_up_at: float | None = None
    report_at = 0.0
    reason: Exception
    with _Watch(database_url) as watch:
        while True:
            try:
                return attempt()
            except MigrationUnderWay as error:
                blocker, reason = watch.blocker or "another process that migrates", error
            except (DBAPIError, psycopg.Error) as error:
                cause = error.orig if isinstance(error, DBAPIError) else error
                if not isinstance(cause, LockNotAvailable | DeadlockDetected):
                    raise
                blocker, reason = watch.blocker or "another session", error
            give_up_at = give_up_at or time.monotonic() + patience.total_seconds
            if time.monotonic() > give_up_at:
                raise LockHeld(f"The schema cannot be migrated: a lock is held by {blocker}.") from reason
            if time.monotonic() >= report_at:
                report_at = time.monotonic() + _REPORT_SECONDS
                logger.warning("The migration waits for a lock that is held by %s, and tries again.", blocker)
            time.sleep(patience.pause_seconds * random.uniform(0.5, 1.0))  # noqa: S311


class _Watch:
    """Looks, in a thread and a session of its own, whom the migration waits for."""

    def __init__(self, database_url: str) -> None:
        self.blocker = ""  # as far as is known; written by the thread alone
        self._url = database_url
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "_Watch":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        parameters = connection_parameters(self._url, schema="pg_catalog")
        with suppress(psycopg.Error), psycopg.connect(autocommit=True, **parameters) as session:
            while not self._over.wait(_CHECK_SECONDS):
                if found := session.execute(_BLOCKING, [APPLICATION_NAME]).fetchone():
                    self.blocker = _described(*found)


def _described(pid: int, application_name: str, age: timedelta | None) -> str:
    name = f'"{application_name}"' if application_name else "unnamed"
    since = f", its transaction open for {age.total_seconds():.0f} s" if age is not None else ""
    return f"session {pid} ({name}{since})"
