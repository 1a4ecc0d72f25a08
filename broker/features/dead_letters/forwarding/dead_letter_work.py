"""Finds what the forwarder of dead letters has to do."""

from datetime import datetime

from broker.db.driver import statements
from broker.db.driver.hot_connection import HotConnection

_FIND_DEAD_LETTER_WORK = statements.hot("find_dead_letter_work")


async def find_dead_letter_work(connection: HotConnection, *, now: datetime) -> list[tuple[str, int]]:
    """Returns names of subscriptions, and their shards, that have something for the forwarder."""
    [rows] = await connection.run((_FIND_DEAD_LETTER_WORK, {"now": now}))
    return [(name, shard_id) for name, shard_id in rows]
