"""The cursors of piles where shards lie on nodes: no statement locks rows of several shards there (L1)."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from broker.store.driver import statements
from broker.store.driver.hot_connection import HotConnection

_LOCK_PILES = statements.hot("lock_piles")
_LOCK_PILES_OF_SHARD = statements.hot("lock_piles_of_shard")
_READ_PILES_OF_SHARD = statements.hot_unlocked("lock_piles_of_shard")
_READ_PILE_OWNERS = statements.hot("read_pile_owners")


async def lock_on_nodes(
    connection: HotConnection,
    shard_ids: Sequence[int],
    subscription_id: int,
    own_shard_ids: Sequence[int],
    *,
    locked: bool = True,
) -> list[Any]:
    """As lock_piles.sql, in the same order: one shard after the other, and who they are of behind all locks.

    Not `locked`: for who only reads.
    """
    statement = _LOCK_PILES_OF_SHARD if locked else _READ_PILES_OF_SHARD
    asked = [
        {"shard_id": shard_id, "subscription_ids": [] if shard_id in shard_ids else [subscription_id]}
        for shard_id in sorted({*shard_ids, *own_shard_ids})
    ]
    if not asked:
        return []
    found = list(chain(*await connection.run(*((statement, each) for each in asked))))
    [rows] = await connection.run(
        (_READ_PILE_OWNERS, {"subscription_ids": sorted({cursor.subscription_id for cursor in found})})
    )
    owners = {owner.subscription_id: owner for owner in rows}
    return [_row(cursor, owners[cursor.subscription_id]) for cursor in found if cursor.subscription_id in owners]


def _row(cursor: Any, owner: Any) -> Any:
    known = cursor._asdict() | owner._asdict()
    return _LOCK_PILES.make_row([known[name] for name in _LOCK_PILES.columns])
