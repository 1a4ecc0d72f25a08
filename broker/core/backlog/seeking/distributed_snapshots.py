"""What a snapshot holds, where tables are distributed: no statement sees all shards at one moment.

So the cursors are locked, which claims wait for, and what is read next sees all that earlier claims wrote: of each
shard the cursor and the attempts that belong to it.  Who acks meanwhile does it before or after the snapshot.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import select

from broker.core.catalog.cursor_locks import lock_cursors
from broker.core.catalog.shard_levels import shards_of
from broker.db.driver import statements
from broker.db.driver.database import ResourceConnection
from broker.db.schema.tables import snapshot_outstanding, snapshot_positions

_COPY_POSITIONS = statements.load("copy_positions")
_COPY_OUTSTANDING = statements.load("copy_outstanding")
_FIND_FIRST_PUBLISH_TIME = statements.load("find_first_publish_time")


async def fill_locked(
    connection: ResourceConnection, where: dict[str, Any], retained_since: datetime
) -> datetime | None:
    """As create_snapshot and read_oldest_in_snapshot: the publish time of the oldest message that it holds."""
    # A shard that the topic gets meanwhile is not in it: a seek to it makes all of that come again.
    owner = [where["subscription_id"]]
    shard_ids = await shards_of(connection, owner)
    await lock_cursors(connection, shard_ids=shard_ids, subscription_ids=owner)
    for statement in (_COPY_POSITIONS, _COPY_OUTSTANDING):
        await connection.exec_driver_sql(statement, {**where, "shard_ids": list(shard_ids)})
    held = snapshot_outstanding.c.first_publish_time
    of_it = snapshot_outstanding.c.snapshot_id == where["snapshot_id"]
    times = list(await connection.scalars(select(held).where(of_it)))
    positions = snapshot_positions.c.shard_id, snapshot_positions.c.next_publish_time, snapshot_positions.c.next_seq
    its = select(*positions).where(snapshot_positions.c.snapshot_id == where["snapshot_id"])
    for row in (await connection.execute(its)).all():
        position = {**row._mapping, "retained_since": retained_since}
        times += (await connection.exec_driver_sql(_FIND_FIRST_PUBLISH_TIME, position)).scalars()
    return min(times, default=None)
