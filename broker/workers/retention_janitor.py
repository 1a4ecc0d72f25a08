"""Makes partitions ahead and gives space back."""

from broker.runtime.database_clock import DatabaseClock
from broker.store.database import Database
from broker.store.partitions import make_partitions_ahead
from broker.store.retention import delete_unwanted, drop_partitions_behind, tidying
from broker.store.snapshots import delete_expired_snapshots


class RetentionJanitor:
    """Every process has one; they take turns (one holds the lock for a pass)."""

    def __init__(self, database: Database, clock: DatabaseClock) -> None:
        self._database = database
        self._clock = clock

    async def run_once(self) -> int:
        """One pass.  Returns the number of partitions made and dropped."""
        async with self._database.connection() as connection, tidying(connection) as our_turn:
            if not our_turn:
                return 0
            now = self._clock.now()
            made = await make_partitions_ahead(connection, now=now)
            await delete_expired_snapshots(connection, now=now)
            await delete_unwanted(connection, now=now)
            return made + await drop_partitions_behind(connection, now=now)
