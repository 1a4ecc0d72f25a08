"""Measures how long messages have waited to be claimed, for messages that yield to more urgent ones (J4)."""

from collections.abc import Mapping
from datetime import datetime

from broker.db.driver import statements
from broker.db.driver.hot_connection import HotConnection

_READ_WAITING_SINCE = statements.hot("read_waiting_since")


async def read_waiting_since(
    connection: HotConnection, *, shard_id: int, retained_since: Mapping[int, datetime], now: datetime
) -> dict[int, datetime]:
    """Reads since when the oldest waiting message of each subscription waits.

    Subscriptions without one are left out.  `retained_since`: for each subscription, the publish time of the oldest
    message that it gets.
    """
    asked = {"subscription_ids": list(retained_since), "sinces": list(retained_since.values())}
    [rows] = await connection.run((_READ_WAITING_SINCE, {"shard_id": shard_id, "now": now, **asked}))
    return {row.subscription_id: row.waiting_since for row in rows}
