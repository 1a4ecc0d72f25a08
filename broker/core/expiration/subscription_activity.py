"""Records which subscriptions are in use, so that unused ones can expire, without a write per call.

A use is kept in memory and written with all others of the process within a minute (`record`), and when the broker
stops.  Only a process that is killed loses the uses of its last minute.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial

from broker.core.expiration.expiration_rows import record_activity
from broker.core.process.database_clock import DatabaseClock
from broker.core.process.retrying import retrying
from broker.db.driver.database import Database
from broker.model.errors import Aborted

_BATCH = 1_000  # rows that one statement locks


class SubscriptionActivity:
    """`used` is called by whatever uses a subscription; `record` by a worker."""

    def __init__(
        self, database: Database, clock: DatabaseClock, *, in_use: Callable[[], Collection[int]] = tuple
    ) -> None:
        """`in_use()`: subscriptions that have connected clients which wait for messages."""
        self._database = database
        self._clock = clock
        self._in_use = in_use
        self._used: set[int] = set()

    def used(self, subscription_id: int) -> None:
        """Records a use of the subscription: a pull, an ack, a successful push, …"""
        self._used.add(subscription_id)

    async def record(self) -> int:
        """Write down what was used since the last time.  What could not be written is kept for the next."""
        used = sorted(self._used.union(self._in_use()))
        self._used = set()
        recorded = 0
        try:
            while used:
                recorded += await retrying(partial(self._write, used[-_BATCH:]), Aborted)
                del used[-_BATCH:]
        finally:
            self._used.update(used)
        return recorded

    async def _write(self, subscription_ids: Sequence[int]) -> int:
        async with self._database.connection() as connection:
            return await record_activity(connection, subscription_ids=subscription_ids, now=self._clock.now())
