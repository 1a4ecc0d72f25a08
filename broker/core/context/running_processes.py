"""The running broker processes, which determine the owner of each push subscription and whether to send
notifications.

Every process writes a heartbeat once a second.  Each push subscription belongs to the process that wins by a hash
of both (rendezvous hashing), so that windows, rate limits and circuit breakers have one owner, and a process that
starts or ends moves only its own share.  Two processes may disagree for some seconds.  Claims are still safe,
because they lock cursors; only a limit may be used twice meanwhile.

A process that is alone sends no notifications, which would cost it a fifth of its publishing throughput.  Other
processes may take up to GONE_AFTER to see one that joins, so for that long the new process polls at every heartbeat
for changes that it was not notified of.
"""

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Protocol

from broker.core.context.process_rows import list_processes, record_process, remove_process
from broker.core.process.database_clock import DatabaseClock
from broker.db.driver.database import Database
from broker.db.schema.schema_state import head_revision
from broker.model.errors import Unavailable
from broker.observability.state_changes import StateChanges

HEARTBEAT_SECONDS = 1.0
GONE_AFTER = timedelta(seconds=4)  # without a heartbeat
_JOINING = GONE_AFTER + timedelta(seconds=2 * HEARTBEAT_SECONDS)


class SharedCounts(Protocol):
    """Numbers by project that the processes tell each other with their heartbeats."""

    def report(self) -> Mapping[str, int]:
        """Return what the other processes must know of this one."""

    def heard(self, reported: Mapping[str, int], others: Sequence[Mapping[str, int]]) -> None:
        """Takes the counts of a heartbeat.

        The other processes know `reported` of this one; each of them has reported one of `others`.
        """


class RunningProcesses:
    """The running processes, as this one sees them."""

    def __init__(
        self,
        database: Database,
        clock: DatabaseClock,
        *,
        changed: Callable[[], None],
        poll: Callable[[], None],
        database_connections: int = 0,
        states: StateChanges | None = None,
    ) -> None:
        """`changed()` is called when another process has joined or left; `poll()` while others may not know of this
        one, and so do not notify it of work.  `database_connections`: how many this
        one opens at the most.
        """
        self._database = database
        self._clock = clock
        self._changed = changed
        self._poll = poll
        self.shared_counts: SharedCounts | None = None  # connections of clients, if they are limited
        self._database_connections = database_connections
        self._states = states or StateChanges()
        self._process_id = uuid.uuid4().hex
        self._others: frozenset[str] = frozenset()
        self._seen_at: datetime | None = None  # when this process last wrote a heartbeat
        self._joined_at: datetime | None = None  # when it wrote the first one, or the first one after an absence
        self._kept_until: datetime | None = None  # until then silent processes are assumed to run

    def owns(self, subscription_id: int) -> bool:
        """Whether this process delivers to the subscription."""
        ours = _weight(self._process_id, subscription_id)
        return all(_weight(other, subscription_id) < ours for other in self._others)

    def count(self) -> int:
        """Returns how many processes run, as far as this one knows."""
        return 1 + len(self._others)

    def is_alone(self) -> bool:
        """Whether no other process needs notifications."""
        return not self._others and self._seen_at is not None and self._clock.now() - self._seen_at < GONE_AFTER

    async def run_once(self) -> int:
        """Say that this process runs, and see which others do.  Returns how many run."""
        now = self._clock.now()
        reported = self.shared_counts.report() if self.shared_counts is not None else {}
        try:
            async with asyncio.timeout(GONE_AFTER.total_seconds()), self._database.transaction() as connection:
                await record_process(
                    connection,
                    process_id=self._process_id,
                    version=head_revision(),
                    now=now,
                    connections=reported,
                    database_connections=self._database_connections,
                )
                running = await list_processes(connection, seen_since=now - GONE_AFTER)
        except TimeoutError:  # that heartbeat is useless by now
            raise Unavailable("The database does not answer.") from None
        absent = self._seen_at is not None and now - self._seen_at > GONE_AFTER
        if absent:
            # The database was away for the others as well; otherwise the first to be back would own everything.
            self._kept_until = now + GONE_AFTER
        if absent or self._joined_at is None:
            self._joined_at = now
        self._seen_at = now
        others = frozenset(running) - {self._process_id}
        if self.shared_counts is not None:
            self.shared_counts.heard(reported, [running[other] for other in others])
        if self._kept_until is not None and now < self._kept_until:
            others |= self._others
        if others != self._others:
            self._report(1 + len(others), before=1 + len(self._others))
            self._others = others
            self._changed()
        if others and now - self._joined_at < _JOINING:
            self._poll()
        return len(others) + 1

    def _report(self, now: int, *, before: int) -> None:
        share = f"{now} broker processes share" if now > 1 else "this broker process is alone with"
        self._states.report(
            "broker processes", f"{share} the database and its push subscriptions (before: {before})"
        )

    async def leave(self) -> None:
        """Removes this process, which ends, so that the others need not wait until they miss it."""
        async with self._database.transaction() as connection:
            await remove_process(connection, process_id=self._process_id)


def _weight(process_id: str, subscription_id: int) -> bytes:
    return blake2b(f"{process_id}:{subscription_id}".encode(), digest_size=16).digest()
