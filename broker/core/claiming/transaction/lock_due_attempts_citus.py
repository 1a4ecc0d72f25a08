"""Locks due attempts on distributed tables only if there may be any (docs/decisions/0059)."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from broker.db.driver import statements
from broker.db.driver.hot_connection import Bound, HotConnection

_GLIMPSE_DUE = statements.hot("glimpse_due")

_GLIMPSED = timedelta(minutes=2)  # the due floor of a subscription that is pulled is a minute behind


async def lock_due_attempts(connection: HotConnection, batch: Sequence[Bound]) -> list[list[Any]]:
    """Reads without locks whether anything is due while the cursor of one subscription is locked.

    The due attempts are locked behind the batch, unless that and the locked cursor rule out that there are any.
    Other batches are sent as they are written.
    """
    names = [statement.file for statement, _ in batch]
    number = names.index("lock_due_attempts")
    _, asked = batch[number]
    if "lock_cursors" not in names or len(asked["subscription_ids"]) > 1:
        return await connection.run(*batch, as_written=True)
    since = asked["now"] - _GLIMPSED
    glimpse = {
        "shard_id": asked["shard_id"],
        "subscription_id": asked["subscription_ids"][0],
        "since": since,
        "now": asked["now"],
    }
    glimpsed = [*batch[:number], (_GLIMPSE_DUE, glimpse), *batch[number + 1 :]]
    rows = await connection.run(*glimpsed, as_written=True)
    locked = rows[names.index("lock_cursors")]
    found, rows[number] = rows[number], []
    if locked and (found or locked[0].due_floor < since):
        [rows[number]] = await connection.run(batch[number], as_written=True)
    return rows
