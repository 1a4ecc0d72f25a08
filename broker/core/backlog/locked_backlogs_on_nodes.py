"""Locks backlogs where shards are on several nodes, of which no statement can lock rows together (L1)."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from broker.db.driver import statements
from broker.db.driver.hot_connection import HotConnection

_LOCK_BACKLOGS = statements.hot("lock_backlogs")
_LOCK_BACKLOGS_OF_SHARD = statements.hot("lock_backlogs_of_shard")
_READ_BACKLOGS_OF_SHARD = statements.hot_unlocked("lock_backlogs_of_shard")
_READ_BACKLOG_SUBSCRIPTIONS = statements.hot("read_backlog_subscriptions")


async def lock_on_nodes(
    connection: HotConnection,
    shard_ids: Sequence[int],
    subscription_id: int,
    own_shard_ids: Sequence[int],
    *,
    locked: bool = True,
) -> list[Any]:
    """Returns the rows of lock_backlogs.sql.  Locks one shard after the other, in the same order, and reads the
    subscriptions once all cursors are locked.  Not `locked`: only to read.
    """
    statement = _LOCK_BACKLOGS_OF_SHARD if locked else _READ_BACKLOGS_OF_SHARD
    asked = [
        {"shard_id": shard_id, "subscription_ids": [] if shard_id in shard_ids else [subscription_id]}
        for shard_id in sorted({*shard_ids, *own_shard_ids})
    ]
    if not asked:
        return []
    found = list(chain(*await connection.run(*((statement, each) for each in asked))))
    [rows] = await connection.run(
        (_READ_BACKLOG_SUBSCRIPTIONS, {"subscription_ids": sorted({cursor.subscription_id for cursor in found})})
    )
    owners = {owner.subscription_id: owner for owner in rows}
    return [_row(cursor, owners[cursor.subscription_id]) for cursor in found if cursor.subscription_id in owners]


def _row(cursor: Any, owner: Any) -> Any:
    known = cursor._asdict() | owner._asdict()
    return _LOCK_BACKLOGS.make_row([known[name] for name in _LOCK_BACKLOGS.columns])
