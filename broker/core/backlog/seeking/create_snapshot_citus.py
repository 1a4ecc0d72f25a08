"""Runs create_snapshot.sql on distributed tables, where no statement has one snapshot of all shards.

The cursors are locked first, so that claims wait.  The cursor and the attempts of a shard that are read then are
consistent with all earlier claims.  A concurrent ack counts as made before or after the snapshot.
"""

from collections.abc import Mapping
from typing import Any

from broker.core.catalog.cursor_locks import lock_cursors
from broker.core.catalog.shard_levels import shards_of
from broker.db.driver import statements
from broker.db.driver.database import ResourceConnection

_COPY_POSITIONS = statements.load("copy_positions")
_COPY_OUTSTANDING = statements.load("copy_outstanding")


async def create_snapshot(connection: ResourceConnection, given: Mapping[str, Any]) -> int:
    """A shard that the topic gets meanwhile is not in the snapshot: a seek to it returns all of its messages."""
    owner = [given["subscription_id"]]
    shard_ids = list(await shards_of(connection, owner))
    await lock_cursors(connection, shard_ids=shard_ids, subscription_ids=owner)
    of_shards = {**given, "shard_ids": shard_ids}
    copied = await connection.exec_driver_sql(_COPY_POSITIONS, of_shards)
    await connection.exec_driver_sql(_COPY_OUTSTANDING, of_shards)
    return copied.rowcount
