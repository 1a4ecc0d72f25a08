"""Deletes or marks rows that are not needed any more, a limited number at a time."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from broker.core.log.partitions import list_partitions
from broker.db.driver.database import Connection
from broker.db.driver.named import change
from broker.db.driver.statements import Text

BATCH = 1_000  # rows of one statement, by default

_NO_BOUNDS: Mapping[str, Any] = {}


async def run_in_batches(connection: Connection, statement: Text, bounds: Mapping[str, Any], *, batch: int) -> int:
    """Run a statement that changes up to `limit` rows, which is `batch`, until it finds fewer; how many."""
    changed = 0
    while True:
        count = await change(connection, statement, {**bounds, "limit": batch})
        changed += count
        if count < batch:
            return changed


async def run_behind_log(
    connection: Connection,
    statement: Text,
    bounds: Mapping[str, Any] = _NO_BOUNDS,
    *,
    until: datetime | None = None,
) -> int:
    """The same for rows about messages that the log has no more, whatever the time: those `before` its oldest
    partition, and before `until`.
    """
    partitions = await list_partitions(connection)
    if not partitions:
        return 0
    before = partitions[0].start if until is None else min(partitions[0].start, until)
    return await run_in_batches(connection, statement, {**bounds, "before": before}, batch=BATCH)
