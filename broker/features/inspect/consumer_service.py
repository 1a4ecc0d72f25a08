"""Lists the clients that pull or stream from a subscription (F3); an extension."""

from collections.abc import Sequence
from datetime import datetime

from broker.core.process.database_clock import DatabaseClock
from broker.core.pulling.reader import Reader
from broker.core.pulling.reader_rows import list_readers
from broker.core.resources.subscription_service import existing_subscription
from broker.db.driver.database import Database


class ConsumerService:
    """Lists consumers.  It changes nothing."""

    def __init__(self, database: Database, clock: DatabaseClock) -> None:
        self._database = database
        self._clock = clock

    async def list_consumers(
        self, subscription_name: str, *, page_size: int
    ) -> tuple[Sequence[Reader], int, datetime]:
        """Returns the `page_size` slowest clients of all processes, slowest first, with their total number and the
        time.

        Processes store the figures of their clients at most every five seconds.  Raises NotFound.
        """
        now = self._clock.now()
        async with self._database.transaction() as connection:
            subscription = await existing_subscription(connection, subscription_name)
            found = await list_readers(connection, subscription_id=subscription.subscription_id, now=now)
        return sorted(found, key=Reader.slowness, reverse=True)[:page_size], len(found), now
