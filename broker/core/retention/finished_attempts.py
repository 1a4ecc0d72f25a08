"""Deletes attempts that can deliver nothing any more."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from broker.db.driver import statements
from broker.db.driver.database import Connection
from broker.db.driver.named import fetch

_DELETE_FINISHED_ATTEMPTS = statements.load("delete_finished_attempts")


async def delete_finished_attempts(
    connection: Connection, *, now: datetime, limit: int
) -> tuple[Sequence[Any], bool]:
    """Deletes finished attempts.  Returns them, and whether there may be more.

    Each has the shard, the subscription, the attempt number, the sequences and the open bits.
    """
    rows = await fetch(connection, _DELETE_FINISHED_ATTEMPTS, {"now": now, "limit": limit})
    return rows, len(rows) >= limit
