"""Reads the messages that a copy publishes, in the order of the log (G2)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from broker.core.filtering.comparing import most_compared
from broker.core.log.copying import Meant
from broker.core.log.log_page import LogPosition, MatchedMessage
from broker.db.driver import statements
from broker.db.driver.hot_connection import HotConnection
from broker.model.message_preview import WHOLE

_SCAN_OLDEST = statements.hot("scan_oldest")
_READ_ENDS = statements.hot("read_ends")

MAX_SCANNED = 10_000  # messages of a step
MAX_BYTES = 4_000_000  # that a step copies, unless a single message is larger


@dataclass(frozen=True, slots=True)
class ShardEnd:
    """The last sequence of a shard, and about how many messages were published within a time."""

    head: int
    count: int


async def read_ends(
    connection: HotConnection, *, shard_ids: Sequence[int], since: datetime, until: datetime
) -> dict[int, ShardEnd]:
    """Returns the end of each shard."""
    asked = {"shard_ids": list(shard_ids), "since": since, "until": until}
    [rows] = await connection.run((_READ_ENDS, asked))
    return {row.shard_id: ShardEnd(row.head, row.count) for row in rows}


async def read_copied(
    connection: HotConnection, *, meant: Meant, after: LogPosition, max_messages: int
) -> tuple[list[MatchedMessage], LogPosition | None]:
    """The next messages of a shard that are meant, and how far it was read; None: to its end."""
    most = most_compared(MAX_SCANNED, meant.body_path)
    asked = {
        "shard_id": after.shard_id,
        "after_publish_time": after.publish_time,
        "after_seq": after.seq,
        "until": meant.until,
        "filter_path": meant.filter_path,
        "body_path": meant.body_path,
        "ordering_key": "",
        "contains": b"",
        "max_scanned": most,
        "max_matched": max_messages,
        "max_bytes": MAX_BYTES,
        "preview_bytes": WHOLE,
    }
    [rows] = await connection.run((_SCAN_OLDEST, asked))
    end = meant.ends[after.shard_id]
    found = [MatchedMessage(after.shard_id, *columns) for *columns, matches, _, _ in rows if matches]
    meant_ones = [message for message in found if message.seq <= end]
    if not rows:
        return meant_ones, None
    seq, publish_time, *_, scanned, is_last = rows[-1]
    is_end = seq >= end or (is_last and scanned < most)
    return meant_ones, None if is_end else LogPosition(after.shard_id, publish_time, seq)
