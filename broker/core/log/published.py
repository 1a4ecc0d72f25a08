"""Reads the messages that are published on a topic, as they arrive (F3)."""

from collections.abc import Sequence

from broker.core.filtering.comparing import most_compared
from broker.core.log.log_page import LogPosition, MatchedMessage
from broker.db.driver import statements
from broker.db.driver.hot_connection import HotConnection
from broker.model.message_preview import WHOLE

_READ_SHARD_ENDS = statements.hot("read_shard_ends")
_LIST_PUBLISHED = statements.hot("list_published")

MAX_SCANNED = 1_000  # messages that a check reads
MAX_BYTES = 1_000_000  # that a check returns, unless a single message is larger


async def read_shard_ends(connection: HotConnection, *, shard_ids: Sequence[int]) -> dict[int, LogPosition]:
    """The position of the last message of each shard."""
    [rows] = await connection.run((_READ_SHARD_ENDS, {"shard_ids": list(shard_ids)}))
    return {row.shard_id: LogPosition(row.shard_id, row.last_publish_time, row.head) for row in rows}


async def list_published(
    connection: HotConnection,
    *,
    after: LogPosition,
    filter_path: str | None,
    body_path: str | None = None,
    preview_bytes: int = WHOLE,
) -> tuple[list[MatchedMessage], LogPosition]:
    """The next messages of a shard that a filter matches (None: all), and the position that they were read to.

    `preview_bytes`: how much of the data of each is wanted.
    """
    asked = {
        "shard_id": after.shard_id,
        "publish_time": after.publish_time,
        "seq": after.seq,
        "filter_path": filter_path,
        "body_path": body_path,
        "max_scanned": most_compared(MAX_SCANNED, body_path),
        "max_bytes": MAX_BYTES,
        "preview_bytes": preview_bytes,
    }
    [rows] = await connection.run((_LIST_PUBLISHED, asked))
    found: list[MatchedMessage] = []
    for row in rows:
        if row.matches and row.data is None:
            break
        after = LogPosition(after.shard_id, row.publish_time, row.seq)
        if row.matches:
            found.append(
                MatchedMessage(
                    after.shard_id,
                    row.seq,
                    row.publish_time,
                    row.ordering_key,
                    row.attributes,
                    row.data,
                    row.id_seq,
                    row.data_size,
                )
            )
    return found, after
