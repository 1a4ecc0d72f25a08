"""Shards: the logs of a topic.  Their heads are moved by store/messages.py alone."""

from collections.abc import Sequence

from broker.store import statements
from broker.store.database import Connection

_READ_HEADS = statements.load("read_heads")


async def read_heads(connection: Connection, *, shard_ids: Sequence[int]) -> dict[int, int]:
    """The last sequence given out in each shard."""
    cursor = await connection.execute(_READ_HEADS, {"shard_ids": list(shard_ids)})
    return dict(await cursor.fetchall())
