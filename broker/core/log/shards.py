"""Shards: the logs of a topic.  Only core/log/messages.py moves their heads."""

from collections.abc import Sequence

from broker.db.driver import statements
from broker.db.driver.hot_connection import HotConnection

_READ_HEADS = statements.hot("read_heads")


async def read_heads(connection: HotConnection, *, shard_ids: Sequence[int]) -> dict[int, int]:
    """The last sequence given out in each shard."""
    [rows] = await connection.run((_READ_HEADS, {"shard_ids": list(shard_ids)}))
    return dict(rows)
