"""Cursors of several shards, locked in the one order (docs/decisions/0031-operations.md)."""

from sqlalchemy import ColumnElement, select

from broker.store.driver.database import ResourceConnection
from broker.store.schema.tables import cursors


async def lock_cursors(connection: ResourceConnection, which: ColumnElement[bool]) -> None:
    """By shard and subscription, before an UPDATE or DELETE of the same, which would take them in any order.

    Waits for claims under way.
    """
    order = cursors.c.shard_id, cursors.c.subscription_id
    await connection.execute(select(cursors.c.shard_id).where(which).order_by(*order).with_for_update())


async def lock_cursors_of(connection: ResourceConnection, subscription_id: int) -> None:
    """All of one subscription's."""
    await lock_cursors(connection, cursors.c.subscription_id == subscription_id)
