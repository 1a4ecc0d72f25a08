"""Makes partitions ahead and gives space back."""

from datetime import timedelta
from functools import partial

from broker.domain.audit_entry import AUDIT_DAYS, AUDIT_ENTRIES
from broker.domain.delivery_record import RECORD_HOURS
from broker.domain.errors import BrokerError
from broker.runtime.core import Core
from broker.store.access.audit_entries import delete_old_audit_entries
from broker.store.driver.postgres_errors import translate_errors
from broker.store.log.delivery_records import drop_old_records
from broker.store.log.identities import drop_identities_behind
from broker.store.log.imports import delete_old_parts
from broker.store.log.in_doubt import tell_of_doubts
from broker.store.log.journal import delete_old_journal
from broker.store.log.partitions import make_partitions_ahead
from broker.store.log.retention import cleaning_up, delete_dead_letters, delete_unwanted, drop_partitions_behind
from broker.store.log.retracted import delete_retractions
from broker.store.log.scheduled_messages import delete_scheduled_ids
from broker.store.log.staged import delete_refused_messages
from broker.store.resources.filter_changes import forget_filters
from broker.store.resources.operations import delete_old_operations
from broker.store.resources.snapshots import delete_expired_snapshots
from broker.telemetry.lost_letters import LostLetters

# Each is done whatever became of those before: a full disk, on which nothing can be made, is given space back.
_PARTS = (
    *(make_partitions_ahead, delete_expired_snapshots, delete_old_journal),
    *(delete_refused_messages, drop_identities_behind, delete_retractions, forget_filters),
)


class RetentionJanitor:
    """Every process has one; they take turns (one holds the lock for a pass)."""

    def __init__(
        self,
        core: Core,
        *,
        audit_days: int = AUDIT_DAYS,
        audit_entries: int = AUDIT_ENTRIES,
        operation_days: int = 7,
        delivery_record_hours: int = RECORD_HOURS,
    ) -> None:
        """For so many days entries of the audit log are kept, the newest `audit_entries` of each project; and for
        `operation_days` operations that have ended, and parts of imports.
        Records of deliveries are kept for `delivery_record_hours`, and as long as their messages.
        """
        self._delivery_record_hours = delivery_record_hours
        self._audit_days, self._audit_entries = audit_days, audit_entries
        self._operation_days = operation_days
        self._states = core.states
        self._lost = LostLetters(self._states, core.counters)
        self._database = core.database
        self._clock = core.clock

    async def run_once(self) -> None:
        """One pass.  Raises the first BrokerError that a part of it met."""
        first: BrokerError | None = None
        async with cleaning_up(self._database) as our_turn, self._database.connection() as connection:
            if not our_turn:
                return
            now = self._clock.now()
            recorded = timedelta(hours=self._delivery_record_hours)
            kept = (
                partial(delete_dead_letters, lost=self._lost),
                partial(delete_old_audit_entries, days=self._audit_days, entries=self._audit_entries),
                partial(delete_old_operations, days=self._operation_days),
                partial(delete_old_parts, days=self._operation_days),
                partial(drop_old_records, kept=recorded),
                partial(delete_scheduled_ids, kept=recorded),
            )
            dropped = (
                partial(delete_unwanted, database=self._database),
                partial(drop_partitions_behind, database=self._database, states=self._states),
            )
            for part in (*_PARTS, *dropped, partial(tell_of_doubts, states=self._states), *kept):
                try:
                    with translate_errors():
                        await part(connection, now=now)
                except BrokerError as error:
                    first = first or error
        if first is not None:
            raise first
