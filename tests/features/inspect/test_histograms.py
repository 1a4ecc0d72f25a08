"""How many messages and bytes of a topic's log were published when (F3)."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.features.inspect import histogram as bounds
from broker.features.inspect.histogram import (
    MAX_BATCHES,
    MAX_SPANS,
    Histogram,
    HistogramOptions,
    check_shards,
    make_spans,
    parse_histogram,
)
from broker.features.inspect.histogram_rows import read_histogram
from broker.model.errors import InvalidArgument
from tests.fixtures.broker import Rest, message
from tests.fixtures.log import SECOND, Log
from tests.query_plans.recorder import Recorder

SPAN = timedelta(minutes=10)


async def _histogram(log: Log, now: timedelta = SPAN, retention: timedelta = SPAN, **options: Any) -> Histogram:
    async with log.session() as session:
        return await read_histogram(
            session,
            shard_ids=[log.shard_id],
            retained_since=log.start + now - retention,
            now=log.start + now,
            options=HistogramOptions(**options),
        )


def _counts(histogram: Histogram) -> list[tuple[int, int]]:
    return [(bucket.messages, bucket.bytes) for bucket in histogram.buckets]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    gaps=st.lists(st.integers(0, 60), min_size=1, max_size=8),
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=3),
    buckets=st.integers(1, 12),
    sampled=st.booleans(),
)
async def test_buckets_have_what_was_published_in_them(
    log: Log, gaps: list[int], sizes: list[int], buckets: int, sampled: bool
) -> None:
    """Counts are right with few batches read; bytes are, too, where all are read."""
    await log.execute("DELETE FROM message_batches")
    await log.execute("UPDATE shards SET last_publish_time = '2000-01-01'")
    times, at = [], 0
    for gap in gaps:
        at += gap
        times.append(log.start + at * SECOND)
        await log.publish(*("x" * size for size in sizes), now=times[-1])
    end = timedelta(seconds=at + 1)
    with pytest.MonkeyPatch.context() as patch:
        if sampled:
            patch.setattr(bounds, "MAX_BATCHES", 1)
        found = await _histogram(log, end, end, buckets=buckets)
    assert (found.start, len(found.buckets)) == (times[0], buckets)
    expected = [
        sum(len(sizes) for time in times if bucket.start <= time < bucket.start + found.width)
        for bucket in found.buckets
    ]
    assert [bucket.messages for bucket in found.buckets] == expected
    assert found.is_estimate == sampled
    if not sampled:
        assert [bucket.bytes for bucket in found.buckets] == [n * sum(sizes) // len(sizes) for n in expected]
    assert sum(bucket.messages for bucket in found.buckets) == len(times) * len(sizes)


async def test_only_what_is_retained_and_lies_between_the_given_times_counts(log: Log) -> None:
    for step in range(60):
        await log.publish("x", now=log.start + step * 10 * SECOND)
    half = await _histogram(log, retention=timedelta(minutes=5), buckets=3)
    assert _counts(half) == [(10, 10)] * 3
    between = await _histogram(
        log,
        buckets=2,
        since=log.start + 100 * SECOND,
        until=log.start + 200 * SECOND,
    )
    assert _counts(between) == [(5, 5)] * 2
    assert (between.end, between.width) == (log.start + 200 * SECOND, 50 * SECOND)
    past = await _histogram(log, retention=SECOND, until=log.start, buckets=2)
    assert _counts(past) == [(0, 0)] * 2


async def test_a_topic_without_messages_has_empty_buckets(log: Log) -> None:
    found = await _histogram(log, buckets=4)
    assert (_counts(found), found.is_estimate) == ([(0, 0)] * 4, False)


async def test_what_another_process_has_published_ahead_of_this_ones_time_counts(log: Log) -> None:
    await log.publish("a", now=log.start)
    await log.publish("b", now=log.start + SPAN + SECOND)
    assert _counts(await _histogram(log, buckets=2)) == [(1, 1), (1, 1)]


async def test_the_bytes_of_many_batches_are_estimated_from_samples(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(100):
        await log.publish("x" * 100, now=log.start + n * SECOND)
    monkeypatch.setattr(bounds, "MAX_BATCHES", 16)
    found = await _histogram(log, 100 * SECOND, buckets=2)
    assert (_counts(found), found.is_estimate) == ([(50, 5000)] * 2, True)


async def test_a_histogram_takes_one_round_trip_for_all_buckets(log: Log) -> None:
    await log.publish("x")
    async with log.session() as session:
        recorder = Recorder(session)
        options = HistogramOptions(buckets=500)
        await read_histogram(
            recorder,  # type: ignore[arg-type]
            shard_ids=[log.shard_id],
            retained_since=log.start,
            now=log.start + SPAN,
            options=options,
        )
        assert recorder.round_trips == 2  # where it begins, and the buckets


@given(buckets=st.integers(1, 500), shards=st.integers(1, 256), seconds=st.integers(0, 10**7))
def test_spans_cover_the_time_within_the_bounds(buckets: int, shards: int, seconds: int) -> None:
    if buckets * shards > MAX_SPANS:
        with pytest.raises(InvalidArgument, match=f"buckets={buckets}"):
            check_shards(buckets, shards)
        return
    check_shards(buckets, shards)
    start = bounds.datetime(2026, 1, 1)
    spans = make_spans(start, start + seconds * SECOND, buckets=buckets, shards=shards)
    assert len(spans.starts) == buckets * spans.probes
    assert len(spans.starts) * shards <= MAX_SPANS
    assert spans.sample == 1 or len(spans.starts) * shards * spans.sample <= MAX_BATCHES
    assert spans.ends[:-1] == spans.starts[1:]
    assert spans.ends[-1] >= start + seconds * SECOND


async def test_a_histogram_is_asked_for_by_its_buckets_and_times(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    await rest.publish("one", message("two", {"a": "b"}))
    path = f"{rest.topic()}:histogram"
    found = await rest.ok("GET", path, params={"buckets": 3})
    assert (found["messageCount"], found["byteCount"], len(found["buckets"])) == (2, 16, 3)
    assert sum(bucket["messageCount"] for bucket in found["buckets"]) == 2
    assert found["buckets"][0]["startTime"] == found["startTime"]
    assert len((await rest.ok("GET", path))["buckets"]) == 60
    for query, named in (
        ({"buckets": 0}, "buckets=0"),
        ({"buckets": 501}, "buckets=501"),
        ({"startTime": "x"}, "startTime"),
    ):
        code, why = await rest.error("GET", path, params=query)
        assert (code, named in why) == ("INVALID_ARGUMENT", True), why
    assert (await rest.error("GET", f"{rest.topic('none')}:histogram"))[0] == "NOT_FOUND"


def test_a_time_without_a_moment_is_refused() -> None:
    moment = bounds.datetime(2026, 1, 1)
    with pytest.raises(InvalidArgument, match="startTime must be before endTime"):
        parse_histogram(None, since=moment, until=moment)
