"""Evaluates a filter on the log, without a subscription (A3)."""

from collections.abc import Sequence
from datetime import datetime

from broker.core.filtering.comparing import most_compared
from broker.core.log.log_page import FilterTest, LogPage, LogPosition, MatchedMessage
from broker.db.driver import statements
from broker.db.driver.hot_connection import HotConnection
from broker.model.delivery import MAX_RESPONSE_BYTES
from broker.model.message_preview import WHOLE

_SCAN_NEWEST = statements.hot("scan_newest")

MAX_SCANNED = 10_000  # messages that one call looks at, in all shards: some 10 ms, as for a filtered claim


async def test_filter(
    connection: HotConnection,
    *,
    shard_ids: Sequence[int],
    filter_path: str | None,
    body_path: str | None,
    retained_since: datetime,
    page: LogPage,
) -> FilterTest:
    """Returns a page of the messages published since `retained_since` that a filter matches, shard after shard.

    `filter_path` None: it matches all.  A page ends when it is full, when MAX_SCANNED messages (fewer, if bodies
    are read) were checked, or when there are no more.
    """
    matched: list[MatchedMessage] = []
    most = most_compared(MAX_SCANNED, body_path)
    scanned, bytes_left = 0, MAX_RESPONSE_BYTES
    for position in _positions(shard_ids, page.before):
        max_scanned, max_matched = most - scanned, page.size - len(matched)
        if min(max_scanned, max_matched, bytes_left) <= 0:
            return FilterTest(matched, scanned, position)
        begin = {"before_publish_time": position.publish_time, "before_seq": position.seq}
        bounds = {"max_scanned": max_scanned, "max_matched": max_matched, "max_bytes": bytes_left}
        preview_bytes = WHOLE if page.with_data else 0
        asked = {"shard_id": position.shard_id, "retained_since": retained_since, "preview_bytes": preview_bytes}
        chosen = {"filter_path": filter_path, "body_path": body_path, "ordering_key": "", "contains": b""}
        [rows] = await connection.run((_SCAN_NEWEST, asked | chosen | begin | bounds))
        if not rows:
            continue
        found = [MatchedMessage(position.shard_id, *columns) for *columns, matches, _, _ in rows if matches]
        matched += found
        bytes_left -= sum(len(message.attributes) + len(message.data or b"") for message in found)
        seq, publish_time, *_, newly_scanned, is_last = rows[-1]
        scanned += newly_scanned
        if not is_last or newly_scanned == max_scanned:
            return FilterTest(matched, scanned, LogPosition(position.shard_id, publish_time, seq))
    return FilterTest(matched, scanned, None)


def _positions(shard_ids: Sequence[int], before: LogPosition | None) -> list[LogPosition]:
    """Returns where to go on in each shard that is not done."""
    if before is None:
        return [LogPosition(shard_id) for shard_id in sorted(shard_ids)]
    return [before, *(LogPosition(shard_id) for shard_id in sorted(shard_ids) if shard_id > before.shard_id)]
