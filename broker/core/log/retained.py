"""Estimates how much the logs of shards retain."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from broker.db.driver import statements
from broker.db.driver.hot_connection import HotConnection

_ESTIMATE_RETAINED = statements.hot("estimate_retained")


class Retained(NamedTuple):
    """The stored messages of a log, whether or not anybody still needs them, and the size of these in bytes."""

    messages: int = 0
    size: int = 0


async def estimate_retained(connection: HotConnection, *, shard_ids: Iterable[int]) -> Mapping[int, Retained]:
    """Returns about how much each shard retains."""
    [rows] = await connection.run((_ESTIMATE_RETAINED, {"shard_ids": sorted(shard_ids)}))
    return {row.shard_id: Retained(row.retained_messages, row.retained_bytes) for row in rows}
