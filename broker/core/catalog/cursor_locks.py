"""Locks cursors and heads of several shards in the one lock order (docs/decisions/0031-operations.md)."""

from collections.abc import Iterable, Sequence

from sqlalchemy import select

from broker.core.catalog.shard_levels import shards_of
from broker.db.driver.database import ResourceConnection, driver_of
from broker.db.driver.held_shards import hold_shards
from broker.db.schema.tables import cursors, shards


async def lock_cursors(
    connection: ResourceConnection, *, shard_ids: Iterable[int], subscription_ids: Sequence[int]
) -> None:
    """Locks cursors by shard and subscription.

    Call it before an UPDATE or DELETE of the same cursors, which would lock them in any order.  Waits for claims
    under way.  It locks a shard at a time: on nodes a statement locks rows of one shard only, and a shard that
    moves would leave the locks behind.
    """
    shard_ids = sorted(shard_ids)
    await hold_shards(await driver_of(connection), shard_ids)
    of_these = cursors.c.subscription_id.in_(subscription_ids)
    for shard_id in shard_ids:
        of_shard = select(cursors.c.shard_id).where(cursors.c.shard_id == shard_id, of_these)
        await connection.execute(of_shard.order_by(cursors.c.subscription_id).with_for_update())


async def lock_cursors_of(connection: ResourceConnection, *subscription_ids: int) -> None:
    """Locks all cursors of subscriptions whose rows still exist."""
    shard_ids = await shards_of(connection, subscription_ids)
    await lock_cursors(connection, shard_ids=shard_ids, subscription_ids=subscription_ids)


async def lock_heads(connection: ResourceConnection, *, shard_ids: Iterable[int]) -> None:
    """Keeps everybody from publishing in some shards until the transaction ends; after whatever else is locked."""
    shard_ids = sorted(shard_ids)
    await hold_shards(await driver_of(connection), shard_ids)
    for shard_id in shard_ids:
        head = select(shards.c.head).where(shards.c.shard_id == shard_id)
        await connection.execute(head.with_for_update(key_share=True))
