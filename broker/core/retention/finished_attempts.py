"""Deleting attempts that can deliver nothing any more."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from broker.db.citus.engine import find_engine
from broker.db.driver import statements
from broker.db.driver.database import Connection

_DELETE_FINISHED_ATTEMPTS = statements.load("delete_finished_attempts")
_DELETE_FINISHED_ON_NODES = statements.load("delete_finished_on_nodes")
_READ_OWNERS = b"SELECT DISTINCT subscription_id FROM delivery_attempts"
_READ_RETAINED = b"""
    SELECT s.subscription_id, %s::timestamptz - greatest(s.message_retention, t.message_retention)
    FROM subscriptions AS s LEFT JOIN topics AS t USING (topic_id)
    WHERE NOT s.detached
"""


async def delete_finished_attempts(
    connection: Connection, *, now: datetime, limit: int
) -> tuple[Sequence[Any], bool]:
    """What was deleted, and whether there may be more.

    Of each the shard, the subscription, the attempt number, the sequences and the open bits.
    """
    if (await find_engine(connection)).is_distributed:
        return await _delete_on_nodes(connection, now), False
    cursor = await connection.execute(_DELETE_FINISHED_ATTEMPTS, {"now": now, "limit": limit})
    rows = await cursor.fetchall()
    return rows, len(rows) == limit


async def _delete_on_nodes(connection: Connection, now: datetime) -> Sequence[Any]:
    """All at once.  Whose there are is read first: a subscription that comes later has none that is gone."""
    owners = {id_ for (id_,) in await (await connection.execute(_READ_OWNERS)).fetchall()}
    retained = dict(await (await connection.execute(_READ_RETAINED, [now])).fetchall())
    kept = [(id_, retained[id_]) for id_ in sorted(owners & retained.keys())]
    wanted = {
        "now": now,
        "gone": sorted(owners - retained.keys()),
        "ids": [id_ for id_, _ in kept],
        "sinces": [since for _, since in kept],
    }
    return await (await connection.execute(_DELETE_FINISHED_ON_NODES, wanted)).fetchall()
