"""The outcomes of the pushes of this process: kept in memory, and written together once a second.

A failed push costs no statement, however many fail.  The records in memory and those that are written are bounded.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from broker.core.catalog.push_state_rows import write_push_states
from broker.core.process.retrying import retrying
from broker.core.pushing.push_failure_rows import record_push_failures
from broker.db.driver.database import Database
from broker.model.errors import Aborted
from broker.model.push_state import MAX_EXCERPT, MAX_KEPT_FAILURES, PushFailure, PushState

MAX_WAITING_FAILURES = 20_000  # of all subscriptions: some 30 MB of excerpts
MAX_WAITING_STATES = 20_000
_BATCH = 1_000  # rows of one statement


class PushLog:
    """`failed` and `changed` are called by whatever delivers; `flush` by a worker, and once more at the end.

    Of each subscription the newest MAX_KEPT_FAILURES failures wait to be written, and its last state.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._failures: dict[int, deque[PushFailure]] = {}  # by subscription
        self._failure_count = 0
        self._states: dict[int, PushState] = {}

    def failed(self, failure: PushFailure) -> None:
        """Adds a failed attempt to deliver."""
        own = self._failures.get(failure.subscription_id)
        if own and (len(own) == MAX_KEPT_FAILURES or self._failure_count >= MAX_WAITING_FAILURES):
            own.popleft()
        elif self._failure_count >= MAX_WAITING_FAILURES:
            self._drop_one()
        else:
            self._failure_count += 1
        kept = replace(failure, detail=failure.detail[:MAX_EXCERPT])
        self._failures.setdefault(failure.subscription_id, deque()).append(kept)

    def changed(self, state: PushState) -> None:
        """Sets the state of an endpoint; a pause that was not written yet stays a pause."""
        earlier = self._states.pop(state.subscription_id, None)
        if earlier is not None and not state.paused_reason:
            state = replace(state, paused_reason=earlier.paused_reason)
        if len(self._states) >= MAX_WAITING_STATES:
            del self._states[next(iter(self._states))]
        self._states[state.subscription_id] = state

    async def flush(self) -> int:
        """Write down what has come since the last time.  Returns how many failures and states that were.

        What could not be written is kept for the next time.  Raises a BrokerError then.
        """
        states, self._states = list(self._states.values()), {}
        failures = [failure for own in self._failures.values() for failure in own]
        self._failures, self._failure_count = {}, 0
        written = 0
        try:
            while states:
                written += await retrying(partial(self._write_states, states[:_BATCH]), Aborted)
                del states[:_BATCH]
            while failures:
                written += await retrying(partial(self._write_failures, failures[:_BATCH]), Aborted)
                del failures[:_BATCH]
        finally:
            self._take_back(states, failures)
        return written

    async def _write_states(self, states: Sequence[PushState]) -> int:
        async with self._database.transaction() as connection:
            return await write_push_states(connection, states=states)

    async def _write_failures(self, failures: Sequence[PushFailure]) -> int:
        async with self._database.transaction() as connection:
            return await record_push_failures(connection, failures=failures)

    def _take_back(self, states: Iterable[PushState], failures: Sequence[PushFailure]) -> None:
        """Puts states and failures back before newer ones."""
        if failures:
            newer = [failure for own in self._failures.values() for failure in own]
            self._failures, self._failure_count = {}, 0
            for failure in (*failures, *newer):
                self.failed(failure)
        later, self._states = self._states, {}
        for state in (*states, *later.values()):
            self.changed(state)

    def _drop_one(self) -> None:
        """Forget the oldest failure of the subscription that has waited longest."""
        subscription_id, own = next(iter(self._failures.items()))
        own.popleft()
        if not own:
            del self._failures[subscription_id]
