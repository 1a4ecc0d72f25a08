"""Pages of a topic's messages have each of them once, in one order over all shards."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.log.log_page import LogPosition, MatchedMessage
from broker.features.inspect.topic_page import ORDERS, Order, ShardScan, TopicPage, merged, parse_topic_page
from broker.model.errors import InvalidArgument
from broker.model.page import page_token

START = datetime(2026, 1, 1, tzinfo=UTC)
LONG_AGO = START - timedelta(days=1)


def _shards(gaps: Sequence[Sequence[int]]) -> dict[int, list[MatchedMessage]]:
    """A log for each: times that go on by so many microseconds, sequences by one."""
    shards: dict[int, list[MatchedMessage]] = {}
    for shard_id, of_shard in enumerate(gaps, 1):
        at, shards[shard_id] = START, []
        for seq, gap in enumerate(of_shard, 1):
            at += timedelta(microseconds=gap)
            shards[shard_id].append(MatchedMessage(shard_id, seq, at, None, "{}", b""))
    return shards


def _scan(log: Sequence[MatchedMessage], begin: LogPosition, page: TopicPage, part: int) -> ShardScan:
    """As the database does it: messages with an even sequence match."""
    place = (begin.publish_time, begin.seq)
    if page.order == "newest":
        behind = [m for m in reversed(log) if (m.publish_time, m.seq) < place]
    else:
        behind = [m for m in log if (m.publish_time, m.seq) > place]
    checked = behind[:part]
    found = [m for m in checked if not m.seq % 2]
    if len(found) > page.size:
        found = found[: page.size]
        checked = checked[: checked.index(found[-1]) + 1]
    last = checked[-1] if checked else None
    more = last is not None and len(checked) < len(behind)
    rest = LogPosition(last.shard_id, last.publish_time, last.seq) if more and last is not None else None
    return ShardScan(found, len(checked), rest)


@given(
    gaps=st.lists(st.lists(st.integers(0, 3), max_size=12), min_size=1, max_size=4),
    size=st.integers(1, 5),
    part=st.integers(1, 6),
    order=st.sampled_from(ORDERS),
)
def test_all_pages_together_have_each_message_once_in_order(
    gaps: list[list[int]], size: int, part: int, order: Order
) -> None:
    shards = _shards(gaps)
    listed: list[MatchedMessage] = []
    start: LogPosition | None = None
    for _ in range(200):
        page = TopicPage(size, order, start=start)
        begins = [page.begin(shard_id, retained_since=LONG_AGO) for shard_id in shards]
        given_ = merged(page, [_scan(shards[b.shard_id], b, page, part) for b in begins])
        assert len(given_.found) <= size
        listed += given_.found
        start = given_.rest
        if start is None:
            break
    everything = [m for log in shards.values() for m in log if not m.seq % 2]
    everything.sort(key=lambda m: (m.publish_time, m.shard_id, m.seq), reverse=order == "newest")
    assert listed == everything


def test_bounds_of_time_hold_from_the_first_page_on() -> None:
    since, until = START + timedelta(seconds=1), START + timedelta(seconds=2)
    newest, oldest = (TopicPage(10, order, since=since, until=until) for order in ORDERS)
    assert newest.begin(1, retained_since=LONG_AGO).publish_time == until - timedelta(microseconds=1)
    assert oldest.begin(1, retained_since=LONG_AGO) == LogPosition(1, since, -1)
    assert oldest.begin(1, retained_since=until) == LogPosition(1, until, -1)


@pytest.mark.parametrize("time", [datetime.min, datetime.max])
@pytest.mark.parametrize("order", ORDERS)
def test_a_position_at_the_end_of_time_is_one_too(order: Order, time: datetime) -> None:
    start = LogPosition(2, time.replace(tzinfo=UTC), 5)
    for shard_id in (1, 2, 3):
        TopicPage(10, order, start=start).begin(shard_id, retained_since=LONG_AGO)
    TopicPage(10, order, until=time.replace(tzinfo=UTC)).begin(1, retained_since=LONG_AGO)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"order": "best"}, "order=best"),
        ({"since": START, "until": START}, "startTime must be before endTime"),
        ({"ordering_key": "\0"}, "orderingKey"),
        ({"size": -1}, "-1"),
        ({"token": "x"}, "x"),
        ({"contains": "x" * 1001}, "1001 characters"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(wrong: dict[str, object], named: str) -> None:
    asked = {
        "size": 0,
        "token": "",
        "order": "",
        "filter_text": "",
        "ordering_key": None,
        "since": None,
        "until": None,
        "contains": "",
    }
    with pytest.raises(InvalidArgument, match=named):
        parse_topic_page(**(asked | wrong))  # type: ignore[arg-type]
    token = page_token(1, START, 1)
    assert parse_topic_page(**(asked | {"token": token})).start == LogPosition(1, START, 1)  # type: ignore[arg-type]
