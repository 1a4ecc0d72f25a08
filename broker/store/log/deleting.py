"""Deleting rows that nothing needs any more, some at a time."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from broker.store.driver.database import Connection
from broker.store.log.partitions import list_partitions

BATCH = 1_000  # rows deleted in one statement, where nothing else is said


async def delete_in_batches(
    connection: Connection, statement: str, bounds: Mapping[str, Any], *, batch: int
) -> int:
    """Run a statement that deletes up to `limit` rows, which is `batch`, until it finds fewer; how many."""
    deleted = 0
    while True:
        cursor = await connection.execute(statement, {**bounds, "limit": batch})
        deleted += cursor.rowcount
        if cursor.rowcount < batch:
            return deleted


async def delete_behind_log(connection: Connection, statement: str, *, until: datetime | None = None) -> int:
    """The same for rows about messages that the log has no more, whatever the time: those `before` its oldest
    partition, and before `until`.
    """
    partitions = await list_partitions(connection)
    if not partitions:
        return 0
    before = partitions[0].start if until is None else min(partitions[0].start, until)
    return await delete_in_batches(connection, statement, {"before": before}, batch=BATCH)
