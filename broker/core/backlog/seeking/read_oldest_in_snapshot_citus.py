"""Runs read_oldest_in_snapshot.sql on distributed tables, by one statement for each shard."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select

from broker.db.driver import statements
from broker.db.driver.database import ResourceConnection
from broker.db.schema.tables import snapshot_outstanding, snapshot_positions

_FIND_FIRST_PUBLISH_TIME = statements.load("find_first_publish_time")


async def read_oldest_in_snapshot(connection: ResourceConnection, given: Mapping[str, Any]) -> list[Any]:
    held = snapshot_outstanding.c.first_publish_time
    of_it = snapshot_outstanding.c.snapshot_id == given["snapshot_id"]
    times = list(await connection.scalars(select(held).where(of_it)))
    positions = snapshot_positions.c.shard_id, snapshot_positions.c.next_publish_time, snapshot_positions.c.next_seq
    its = select(*positions).where(snapshot_positions.c.snapshot_id == given["snapshot_id"])
    for row in (await connection.execute(its)).all():
        position = {**row._mapping, "retained_since": given["retained_since"]}
        times += (await connection.exec_driver_sql(_FIND_FIRST_PUBLISH_TIME, position)).scalars()
    return [(min(times, default=None),)]
