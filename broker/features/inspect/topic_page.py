"""Pages of the messages that a topic retains, merged from all of its shards (F3)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from broker.core.log.log_page import LogPosition, MatchedMessage, parse_log_page
from broker.model.errors import InvalidArgument
from broker.model.message_preview import WHOLE
from broker.model.refusals import refuse_nul

Order = Literal["newest", "oldest"]
ORDERS: tuple[Order, ...] = ("newest", "oldest")

MAX_CONTAINS = 1_000  # characters

_STEP = timedelta(microseconds=1)  # the resolution of publish times
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TopicPage:
    """Options of a page of a topic's messages.

    `size`: the maximum number of messages.  `filter`: a filter of messages ("": all).  `ordering_key`: the key that
    messages must have (None: any).  `since`, `until`: messages are published at the first time or later, and before
    the second (None: no bound).  `start`: the position after which the page begins (None: the first message).
    `contains`: a text that the data must contain, as UTF-8.  `preview_bytes`: the number of bytes of each message's
    data that are shown.
    """

    size: int
    order: Order = "newest"
    filter: str = ""
    ordering_key: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    start: LogPosition | None = None
    contains: str = ""
    preview_bytes: int = WHOLE

    def rank(self, message: "MatchedMessage | LogPosition") -> tuple[datetime, int, int]:
        """Returns the sort key of messages: time, shard, sequence.  The order `newest` sorts by it in reverse."""
        return message.publish_time, message.shard_id, message.seq

    def begin(self, shard_id: int, *, retained_since: datetime) -> LogPosition:
        """Returns the position after which a shard is read for this page."""
        start = self.start
        if self.order == "newest":
            if start is None:
                return LogPosition(shard_id) if self.until is None else LogPosition(shard_id, _earlier(self.until))
            if shard_id == start.shard_id:
                return start
            return LogPosition(
                shard_id, start.publish_time if shard_id < start.shard_id else _earlier(start.publish_time)
            )
        if start is None:
            return LogPosition(shard_id, max(retained_since, self.since or retained_since), -1)
        if shard_id == start.shard_id:
            return start
        return LogPosition(
            shard_id, start.publish_time if shard_id > start.shard_id else _later(start.publish_time), -1
        )


def _earlier(moment: datetime) -> datetime:
    """Returns the moment one step earlier, or the same if there is none."""
    return moment - _STEP if moment > _FIRST else moment


def _later(moment: datetime) -> datetime:
    return moment + _STEP if moment < _LAST else moment


@dataclass(frozen=True, slots=True)
class ShardScan:
    """The messages that were found in a shard; `rest`: how far it was read (None: to its end)."""

    found: Sequence[MatchedMessage]
    scanned: int
    rest: LogPosition | None


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a list: the time that it has reached, and about `searched` of about `total` messages read."""

    time: datetime
    searched: int
    total: int


@dataclass(frozen=True, slots=True)
class TopicMessages:
    """A page of a topic's messages.

    `scanned`: the number of messages that were read for it.  `rest`: the position after which the next page begins
    (None: there is no more).
    """

    found: Sequence[MatchedMessage]
    scanned: int
    rest: LogPosition | None
    progress: Progress | None = None


def merged(page: TopicPage, scans: Iterable[ShardScan]) -> TopicMessages:
    """Merges what was found in all shards, up to the first position at which a shard was not read further.

    What other shards have after that position may follow messages that have yet to be read.
    """
    scans = list(scans)
    newest = page.order == "newest"
    ends = sorted((scan.rest for scan in scans if scan.rest is not None), key=page.rank, reverse=newest)
    found = sorted((each for scan in scans for each in scan.found), key=page.rank, reverse=newest)
    if ends:
        end = page.rank(ends[0])
        found = [each for each in found if (page.rank(each) >= end if newest else page.rank(each) <= end)]
    rest = ends[0] if ends else None
    if len(found) > page.size:
        found = found[: page.size]
        last = found[-1]
        rest = LogPosition(last.shard_id, last.publish_time, last.seq)
    return TopicMessages(found, sum(scan.scanned for scan in scans), rest)


def check_contains(text: str) -> None:
    """Raises InvalidArgument for a text that cannot be searched for."""
    refuse_nul(text, "contains")
    if len(text) > MAX_CONTAINS:
        raise InvalidArgument(f"contains has {len(text)} characters, the maximum is {MAX_CONTAINS}.")


def parse_topic_page(
    size: int,
    token: str,
    *,
    order: str,
    filter_text: str,
    ordering_key: str | None,
    since: datetime | None,
    until: datetime | None,
    contains: str,
    preview_bytes: int = WHOLE,
) -> TopicPage:
    """Returns the options of a page.

    Raises InvalidArgument for an unknown order, a negative size, a token that is not that of a position, an empty
    span of time, a key that no message can have, or a text that is too long to be searched for.
    """
    page = parse_log_page(size, token)
    if order not in ("", *ORDERS):
        raise InvalidArgument(f"order must be one of {', '.join(ORDERS)} (order={order[:100]}).")
    refuse_nul(ordering_key or "", "orderingKey")
    check_contains(contains)
    if since is not None and until is not None and since >= until:
        raise InvalidArgument(f"startTime must be before endTime (startTime={since}, endTime={until}).")
    chosen: Order = "oldest" if order == "oldest" else "newest"
    return TopicPage(
        page.size, chosen, filter_text, ordering_key, since, until, page.before, contains, preview_bytes
    )
