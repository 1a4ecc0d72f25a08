"""Lists the messages that a topic retains (F3)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from broker.core.filtering.comparing import most_compared
from broker.core.log.copied_messages import read_ends
from broker.core.log.log_page import LogPosition, MatchedMessage
from broker.db.driver import statements
from broker.db.driver.hot_connection import Bound, HotConnection
from broker.features.inspect.topic_page import Progress, ShardScan, TopicMessages, TopicPage, merged
from broker.model.delivery import MAX_RESPONSE_BYTES

_SCAN_NEWEST = statements.hot("scan_newest")
_SCAN_OLDEST = statements.hot("scan_oldest")
_END_OF_TIME = datetime.max.replace(tzinfo=UTC)

MAX_SCANNED = 10_000  # messages that one call reads, in all shards


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Parameters of a list.

    `filter_path`: None matches all messages.  Messages from before `retained_since` are not listed.
    """

    shard_ids: Sequence[int]
    filter_path: str | None
    body_path: str | None = None
    retained_since: datetime
    now: datetime
    page: TopicPage

    @property
    def searches(self) -> bool:
        """Returns whether the page selects among the messages of the topic, so that it reports its progress."""
        return bool(self.page.filter or self.page.ordering_key or self.page.contains)


async def list_topic_messages(connection: HotConnection, asked: Asked) -> TopicMessages:
    """Returns a page merged from all shards, each of which is read up to its part of MAX_SCANNED, in one round
    trip.
    """
    begins = [asked.page.begin(shard_id, retained_since=asked.retained_since) for shard_id in asked.shard_ids]
    part = max(most_compared(MAX_SCANNED, asked.body_path) // len(begins), 1)
    answers = await connection.run(*[_scan(asked, begin, part, len(begins)) for begin in begins])
    scans = [_read(begin, rows, part) for begin, rows in zip(begins, answers, strict=True)]
    found = merged(asked.page, scans)
    return replace(found, progress=await _progress(connection, asked, found.rest)) if asked.searches else found


async def _progress(connection: HotConnection, asked: Asked, rest: LogPosition | None) -> Progress:
    """Estimates how far all pages up to this one have searched, from the sequences at both ends and
    at this place.
    """
    page = asked.page
    since = max(asked.retained_since, page.since or asked.retained_since)
    until = _END_OF_TIME if page.until is None else page.until
    newest = page.order == "newest"
    total = await _count(connection, asked, since, until)
    if rest is None:
        return Progress(since if newest else min(until, asked.now), total, total)
    searched = await _count(
        connection, asked, *((rest.publish_time, until) if newest else (since, rest.publish_time))
    )
    return Progress(rest.publish_time, min(searched, total), total)


async def _count(connection: HotConnection, asked: Asked, since: datetime, until: datetime) -> int:
    ends = await read_ends(connection, shard_ids=asked.shard_ids, since=since, until=until)
    return sum(end.count for end in ends.values())


def _scan(asked: Asked, begin: LogPosition, part: int, shards: int) -> Bound:
    page = asked.page
    common: dict[str, Any] = {
        "shard_id": begin.shard_id,
        "filter_path": asked.filter_path,
        "body_path": asked.body_path,
        "ordering_key": page.ordering_key or "",
        "contains": page.contains.encode(),
        "preview_bytes": page.preview_bytes,
        "max_scanned": part,
        "max_matched": page.size,
        "max_bytes": MAX_RESPONSE_BYTES // shards,
    }
    if page.order == "oldest":
        after = {"after_publish_time": begin.publish_time, "after_seq": begin.seq}
        return _SCAN_OLDEST, common | after | {"until": page.until or _END_OF_TIME}
    return _SCAN_NEWEST, common | {
        "before_publish_time": begin.publish_time,
        "before_seq": begin.seq,
        "retained_since": max(asked.retained_since, page.since or asked.retained_since),
    }


def _read(begin: LogPosition, rows: Sequence[Sequence[Any]], part: int) -> ShardScan:
    found = [MatchedMessage(begin.shard_id, *columns) for *columns, matches, _, _ in rows if matches]
    if not rows:
        return ShardScan(found, 0, None)
    seq, publish_time, *_, scanned, is_last = rows[-1]
    more = not is_last or scanned == part
    return ShardScan(found, scanned, LogPosition(begin.shard_id, publish_time, seq) if more else None)
