"""Counts the push requests of this process, and notes changes of circuit breakers, to be written down together.

A request costs no statement: counts are added up in memory, by minute and status, and written every ten seconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from broker.core.process.retrying import retrying
from broker.core.pushing.push_history_rows import record_breaker_changes, record_push_attempts
from broker.db.driver.database import Database
from broker.model.errors import Aborted
from broker.model.push_history import OTHER, BreakerChange, PushAttempts, minute_of

INTERVAL_SECONDS = 10.0
MAX_STATUSES = 8  # of failures of a subscription in a minute that are counted apart until they are written
MAX_WAITING = 20_000  # counts, and changes, that wait for the database
_BATCH = 1_000  # rows of one statement


@dataclass(slots=True)
class _Count:
    delivered: bool
    requests: int = 0
    seconds: float = 0.0
    message_id: str = ""


class PushHistory:
    """`attempted` and `breaker_changed` are called where requests end; `flush` by a worker, and once at the end."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._counts: dict[tuple[int, datetime], dict[str, _Count]] = {}  # by subscription and minute, and status
        self._changes: list[BreakerChange] = []

    def attempted(
        self, subscription_id: int, now: datetime, *, status: str, delivered: bool, seconds: float, message_id: str
    ) -> None:
        """A request has ended."""
        where = subscription_id, minute_of(now)
        counts = self._counts.get(where)
        if counts is None:
            if len(self._counts) >= MAX_WAITING:
                del self._counts[next(iter(self._counts))]
            counts = self._counts[where] = {}
        count = counts.get(status)
        if count is None:
            if not delivered and sum(not each.delivered for each in counts.values()) >= MAX_STATUSES:
                status = OTHER  # there are few statuses of success, which are always counted apart
            count = counts.setdefault(status, _Count(delivered))
        count.requests += 1
        count.seconds += seconds
        count.message_id = message_id

    def breaker_changed(self, change: BreakerChange) -> None:
        """The circuit breaker of an endpoint has changed its state."""
        if len(self._changes) >= MAX_WAITING:
            del self._changes[0]
        self._changes.append(change)

    async def flush(self) -> None:
        """Writes down what has come since the last time.  Raises a BrokerError; what was not written is kept."""
        attempts, changes = self._take_attempts(), self._changes
        self._counts, self._changes = {}, []
        try:
            while attempts:
                await retrying(partial(self._write_attempts, attempts[:_BATCH]), Aborted)
                del attempts[:_BATCH]
            while changes:
                await retrying(partial(self._write_changes, changes[:_BATCH]), Aborted)
                del changes[:_BATCH]
        finally:
            self._take_back(attempts, changes)

    def _take_attempts(self) -> list[PushAttempts]:
        return [
            PushAttempts(
                subscription_id=subscription_id,
                minute=minute,
                status=status,
                delivered=count.delivered,
                requests=count.requests,
                latency=timedelta(seconds=count.seconds),
                last_message_id=count.message_id,
            )
            for (subscription_id, minute), counts in self._counts.items()
            for status, count in counts.items()
        ]

    async def _write_attempts(self, attempts: Sequence[PushAttempts]) -> None:
        async with self._database.transaction() as connection:
            await record_push_attempts(connection, attempts=attempts)

    async def _write_changes(self, changes: Sequence[BreakerChange]) -> None:
        async with self._database.transaction() as connection:
            await record_breaker_changes(connection, changes=changes)

    def _take_back(self, attempts: Sequence[PushAttempts], changes: Sequence[BreakerChange]) -> None:
        self._changes = [*changes, *self._changes][-MAX_WAITING:]
        for each in attempts:
            counts = self._counts.get((each.subscription_id, each.minute))
            if counts is None:
                if len(self._counts) >= MAX_WAITING:
                    return
                counts = self._counts[each.subscription_id, each.minute] = {}
            count = counts.setdefault(each.status, _Count(each.delivered, message_id=each.last_message_id))
            count.requests += each.requests
            count.seconds += each.latency.total_seconds()
