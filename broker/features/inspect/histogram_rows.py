"""Reads the histogram of a topic's log, at a cost that does not grow with the number of its messages (F3)."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from broker.db.driver import statements
from broker.db.driver.hot_connection import HotConnection
from broker.features.inspect.histogram import Bucket, Histogram, HistogramOptions, Spans, make_spans
from broker.model.timestamps import END_OF_TIME

_MEASURE_BUCKETS = statements.hot("measure_buckets")
_FIND_OLDEST_BATCH = statements.hot("find_oldest_batch")


async def read_histogram(
    connection: HotConnection,
    *,
    shard_ids: Sequence[int],
    retained_since: datetime,
    now: datetime,
    options: HistogramOptions,
) -> Histogram:
    """Counts messages by their sequences, and measures bytes in samples where there are many batches.

    Messages from before `retained_since` are not counted.
    """
    end = now if options.until is None else options.until
    start = await _start(connection, shard_ids, retained_since, end, options)
    spans = make_spans(start, end, buckets=options.buckets, shards=len(shard_ids))
    ends = [min(each, end) for each in spans.ends]
    if options.until is None:  # another process may be ahead of this one's time
        ends[max(number for number, each in enumerate(spans.starts) if each <= end)] = END_OF_TIME
    wanted = {"starts": spans.starts, "ends": ends, "sample": spans.sample}
    answers = await connection.run(*[(_MEASURE_BUCKETS, {"shard_id": id_, **wanted}) for id_ in shard_ids])
    messages, sizes, is_estimate = [0] * options.buckets, [0] * options.buckets, False
    for row in (row for rows in answers for row in rows):
        bucket = (row.ordinal - 1) // spans.probes
        count, size, is_sample = _measured(row, spans)
        messages[bucket] += count
        sizes[bucket] += size
        is_estimate = is_estimate or is_sample
    starts = [start + number * spans.width for number in range(options.buckets)]
    buckets = [Bucket(*each) for each in zip(starts, messages, sizes, strict=True)]
    return Histogram(start, end, spans.width, buckets, is_estimate)


async def _start(
    connection: HotConnection,
    shard_ids: Sequence[int],
    retained_since: datetime,
    end: datetime,
    options: HistogramOptions,
) -> datetime:
    """Returns the start of the first bucket, which is never after `end`."""
    if options.since is not None:
        return min(max(options.since, retained_since), end)
    asked = [(_FIND_OLDEST_BATCH, {"shard_id": shard_id, "since": retained_since}) for shard_id in shard_ids]
    oldest = [row.publish_time for rows in await connection.run(*asked) for row in rows]
    return min([*oldest, end]) if oldest else min(retained_since, end)


def _measured(row: Any, spans: Spans) -> tuple[int, int, bool]:
    """Returns the messages and bytes of a span, and whether the bytes are extrapolated from a sample."""
    if row.batches < spans.sample:
        return row.messages, row.bytes, False
    count = row.last_seq - row.first_seq + 1
    return count, row.bytes * count // row.messages, True
