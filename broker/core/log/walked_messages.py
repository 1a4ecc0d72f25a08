"""Reads the selected messages from the logs of a subscription, step by step (G2)."""

from typing import Any

from broker.core.filtering.comparing import most_compared
from broker.core.log.log_page import LogPosition
from broker.core.log.log_walk import LogWalk
from broker.db.driver import statements
from broker.db.driver.hot_connection import HotConnection

_FIND_MATCHING = statements.hot("find_matching")

_MAX_SCANNED = 10_000


async def read_matching(
    connection: HotConnection, meant: LogWalk, after: LogPosition, max_messages: int
) -> tuple[list[Any], LogPosition | None]:
    """The next that match, behind a position, and how far it was read; None: to the end."""
    asked = {
        "shard_id": after.shard_id,
        "after_publish_time": after.publish_time,
        "after_seq": after.seq,
        "until": meant.until,
        "filter_path": meant.filter_path,
        "body_path": meant.body_path,
        "max_scanned": most_compared(_MAX_SCANNED, meant.body_path),
        "max_matched": max_messages + 1,  # one more may be the last scanned
    }
    [rows] = await connection.run((_FIND_MATCHING, asked))
    if not rows:
        return [], None
    last = meant.ends[after.shard_id]
    found = [row for row in rows if row.matches][:max_messages]
    end = found[-1] if len(found) == max_messages else rows[-1]
    rest = None if end.seq >= last else LogPosition(after.shard_id, end.publish_time, end.seq)
    return [row for row in found if row.seq <= last], rest
