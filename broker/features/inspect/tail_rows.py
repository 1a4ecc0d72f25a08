"""Finds the oldest retained message of a shard."""

from datetime import datetime

from broker.db.driver import statements
from broker.db.driver.hot_connection import HotConnection

_FIND_OLDEST_BATCH = statements.hot("find_oldest_batch")


async def find_oldest(connection: HotConnection, *, shard_id: int, since: datetime) -> int | None:
    """Returns the first sequence of a shard that was published at a time or later, or None if there is none."""
    [rows] = await connection.run((_FIND_OLDEST_BATCH, {"shard_id": shard_id, "since": since}))
    return rows[0].first_seq if rows else None
