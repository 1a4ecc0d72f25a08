"""Finds work of the forwarder of dead letters."""

from datetime import datetime

from broker.db.driver import statements
from broker.db.driver.hot_connection import HotConnection

_FIND_DEAD_LETTER_WORK = statements.hot("find_dead_letter_work")


async def find_dead_letter_work(connection: HotConnection, *, now: datetime) -> list[tuple[str, int]]:
    """Returns subscriptions, by name, and their shards that have dead letters to forward."""
    [rows] = await connection.run((_FIND_DEAD_LETTER_WORK, {"now": now}))
    return [(name, shard_id) for name, shard_id in rows]
