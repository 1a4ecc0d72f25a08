"""Runs lock_backlogs.sql on distributed tables, where no statement can lock rows of several shards (L1)."""

from itertools import chain
from typing import Any

from broker.db.driver import statements
from broker.db.driver.forms import of_one_statement
from broker.db.driver.hot_connection import HotConnection
from broker.db.driver.statements import Statement

_LOCK_BACKLOGS = statements.hot("lock_backlogs")
_LOCK_BACKLOGS_OF_SHARD = statements.hot("lock_backlogs_of_shard")
_READ_BACKLOGS_OF_SHARD = statements.hot_unlocked("lock_backlogs_of_shard")
_READ_BACKLOG_SUBSCRIPTIONS = statements.hot("read_backlog_subscriptions")


@of_one_statement
async def lock_backlogs(connection: HotConnection, given: dict[str, Any]) -> list[Any]:
    """Locks one shard after the other, in the same order, and reads the subscriptions behind all the locks."""
    return await _read_backlogs(connection, given, _LOCK_BACKLOGS_OF_SHARD)


@of_one_statement
async def lock_backlogs_unlocked(connection: HotConnection, given: dict[str, Any]) -> list[Any]:
    """Reads the same rows, and locks none."""
    return await _read_backlogs(connection, given, _READ_BACKLOGS_OF_SHARD)


async def _read_backlogs(connection: HotConnection, given: dict[str, Any], statement: Statement) -> list[Any]:
    shard_ids, subscription_id = given["shard_ids"], given["subscription_id"]
    asked = [
        {"shard_id": shard_id, "subscription_ids": [] if shard_id in shard_ids else [subscription_id]}
        for shard_id in sorted({*shard_ids, *given["own_shard_ids"]})
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
