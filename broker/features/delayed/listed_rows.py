"""Reads lists of scheduled messages (J1)."""

from collections.abc import Sequence

from broker.db.driver import statements
from broker.db.driver.by_shard import by_shard
from broker.db.driver.hot_connection import HotConnection
from broker.features.delayed.delay import ScheduledMessage
from broker.features.delayed.page import SchedulePage

_LIST_SCHEDULED = statements.hot("list_scheduled")
_READ_SCHEDULED = statements.hot("read_scheduled")
_COUNT_SCHEDULED = statements.hot("count_scheduled")


async def list_scheduled(
    connection: HotConnection, *, shard_ids: Sequence[int], page: SchedulePage
) -> list[ScheduledMessage]:
    """Lists a page of messages and one more, the first due first, with as much data as the page says."""
    asked = {
        "shard_ids": list(shard_ids),
        "after": page.after,
        "after_id_seq": page.id_seq,
        "after_shard_id": page.shard_id,
        "max_messages": page.size + 1,
        "preview_bytes": page.preview_bytes,
    }
    [rows] = await connection.run((_LIST_SCHEDULED, asked))
    return [ScheduledMessage(*row) for row in rows]


async def read_scheduled(connection: HotConnection, *, shard_id: int, id_seq: int) -> ScheduledMessage | None:
    """None: no such message waits."""
    [rows] = await connection.run((_READ_SCHEDULED, {"shard_id": shard_id, "id_seq": id_seq}))
    return ScheduledMessage(*rows[0]) if rows else None


async def count_scheduled(connection: HotConnection, *, shard_ids: Sequence[int], most: int) -> int:
    """Counts the scheduled messages of these shards; exactly, while there are fewer than `most`."""
    asked = by_shard(connection, _COUNT_SCHEDULED, {"shard_ids": list(shard_ids), "most": most})
    return sum(messages for [(messages,)] in await connection.run(*asked))
