"""Rows of idle subscriptions: records uses, watches, deletes (rules: broker/core/expiration/expiration.py)."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from broker.core.catalog.subscription_rows import delete_subscription
from broker.core.expiration.expiration import (
    GRACE,
    LONGEST_GAP,
    NOTICE,
    RECORD_LAG,
    RECORD_RESOLUTION,
    WATCH_INTERVAL,
)
from broker.db.driver import statements
from broker.db.driver.database import Connection, ResourceConnection

_RECORD_ACTIVITY = statements.load("record_activity")
_WATCH_IDLE_SUBSCRIPTIONS = statements.load("watch_idle_subscriptions")
_FIND_EXPIRED_SUBSCRIPTIONS = statements.load("find_expired_subscriptions")
_LOCK_EXPIRED_SUBSCRIPTION = statements.load("lock_expired_subscription")

_JUST_NOW = WATCH_INTERVAL / 2  # a check so recent, by any process, is not repeated
_CONDITION = {"lag": RECORD_LAG, "notice": NOTICE}


async def record_activity(connection: Connection, *, subscription_ids: Sequence[int], now: datetime) -> int:
    """Write down that subscriptions were used.  Returns how many were not written down yet."""
    used = {"subscription_ids": list(subscription_ids), "now": now, "resolution": RECORD_RESOLUTION}
    return (await connection.execute(_RECORD_ACTIVITY, used)).rowcount


async def watch_idle_subscriptions(connection: Connection, *, now: datetime) -> int:
    """Look at the subscriptions that are about to expire.  Returns how many there are."""
    watching = {
        "now": now,
        "longest_gap": LONGEST_GAP,
        "notice": NOTICE,
        "grace": GRACE,
        "interval": _JUST_NOW,
    }
    return (await connection.execute(_WATCH_IDLE_SUBSCRIPTIONS, watching)).rowcount


async def find_expired_subscriptions(connection: Connection, *, now: datetime, limit: int) -> list[str]:
    """Names of subscriptions that `delete_expired_subscription` would delete."""
    cursor = await connection.execute(_FIND_EXPIRED_SUBSCRIPTIONS, {**_CONDITION, "now": now, "limit": limit})
    return [name for (name,) in await cursor.fetchall()]


async def delete_expired_subscription(
    connection: ResourceConnection, *, name: str, now: datetime
) -> timedelta | None:
    """Delete a subscription if it is still expired.  Returns for how long it was idle, None if it stays."""
    locked = await connection.exec_driver_sql(_LOCK_EXPIRED_SUBSCRIPTION, {**_CONDITION, "name": name, "now": now})
    row: Any = locked.one_or_none()
    if row is None:
        return None
    subscription_id, last_active_at = row
    await delete_subscription(connection, subscription_id=subscription_id)
    idle: timedelta = now - last_active_at
    return idle
