"""Creates partitions ahead of time, and frees space."""

from collections.abc import Awaitable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

from broker.access.audit.audit_entry import AUDIT_DAYS, AUDIT_ENTRIES
from broker.access.audit.audit_rows import delete_old_audit_entries
from broker.core.backlog.seeking.snapshot_rows import delete_expired_snapshots
from broker.core.context.core import Core
from broker.core.log.partitions import make_partitions_ahead
from broker.core.records.delivery_record import RECORD_HOURS
from broker.core.records.delivery_record_rows import drop_old_records
from broker.core.records.journal import delete_old_journal
from broker.core.retention.retention import (
    cleaning_up,
    delete_dead_letters,
    delete_unwanted,
    drop_partitions_behind,
)
from broker.db.driver.database import Connection
from broker.db.driver.in_doubt import report_in_doubt
from broker.db.driver.postgres_errors import translate_errors
from broker.model.errors import BrokerError
from broker.observability.lost_dead_letters import LostDeadLetters


class CleanUp(Protocol):
    """Deletes rows or partitions that nothing needs any more."""

    def __call__(self, connection: Connection, /, *, now: datetime) -> Awaitable[object]: ...


class RetentionJanitor:
    """The janitor of a process.  Processes take turns (one holds the lock for a pass)."""

    def __init__(
        self,
        core: Core,
        clean_ups: Sequence[CleanUp] = (),
        *,
        audit_days: int = AUDIT_DAYS,
        audit_entries: int = AUDIT_ENTRIES,
        delivery_record_hours: int = RECORD_HOURS,
    ) -> None:
        """`clean_ups` are those of extensions, which run at the end of each pass.

        Entries of the audit log are kept for `audit_days`, the newest `audit_entries` of each project.  Records of
        deliveries are kept for `delivery_record_hours`, and as long as their messages.
        """
        self._clean_ups = clean_ups
        self._delivery_record_hours = delivery_record_hours
        self._audit_days, self._audit_entries = audit_days, audit_entries
        self._states = core.states
        self._lost = LostDeadLetters(self._states, core.counters)
        self._database = core.database
        self._clock = core.clock

    async def run_once(self) -> None:
        """Run one pass.  Raises the first BrokerError that a part of it met."""
        first: BrokerError | None = None
        async with cleaning_up(self._database) as our_turn, self._database.connection() as connection:
            if not our_turn:
                return
            now = self._clock.now()
            # Each part runs even if another one has failed: on a full disk, where no partition can be created, the
            # others free space.
            for part in (*self._parts(), *self._clean_ups):
                try:
                    with translate_errors():
                        await part(connection, now=now)
                except BrokerError as error:
                    first = first or error
        if first is not None:
            raise first

    def _parts(self) -> Sequence[CleanUp]:
        return (
            make_partitions_ahead,
            delete_expired_snapshots,
            delete_old_journal,
            partial(delete_unwanted, database=self._database),
            partial(drop_partitions_behind, database=self._database, states=self._states),
            partial(report_in_doubt, states=self._states),
            partial(delete_dead_letters, lost=self._lost),
            partial(delete_old_audit_entries, days=self._audit_days, entries=self._audit_entries),
            partial(drop_old_records, kept=timedelta(hours=self._delivery_record_hours)),
        )
