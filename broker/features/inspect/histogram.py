"""Histograms of a topic's log: messages and bytes by the time of their publishing (F3)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from broker.model.errors import InvalidArgument

DEFAULT_BUCKETS = 60
MAX_BUCKETS = 500
MAX_SPANS = 10_000  # buckets times shards: each takes some looks into an index
MAX_BATCHES = 20_000  # that a call reads to measure bytes
MAX_PROBES = 4  # parts of a bucket whose batches are sampled by themselves

_STEP = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class HistogramOptions:
    """So many buckets of equal width, from `since` on (None: from the oldest message on) and before `until` (None:
    until now).
    """

    buckets: int = DEFAULT_BUCKETS
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Bucket:
    """What was published from `start` on, for the width of the histogram."""

    start: datetime
    messages: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Histogram:
    """`is_estimate`: not all batches were read, so that bytes are those of samples."""

    start: datetime
    end: datetime
    width: timedelta
    buckets: Sequence[Bucket]
    is_estimate: bool


@dataclass(frozen=True, slots=True)
class Spans:
    """The parts of all buckets, each sampled by itself: `probes` for each bucket, `sample` batches of each."""

    starts: Sequence[datetime]
    ends: Sequence[datetime]
    width: timedelta
    probes: int
    sample: int


def parse_histogram(buckets: int | None, *, since: datetime | None, until: datetime | None) -> HistogramOptions:
    """Raises InvalidArgument."""
    count = DEFAULT_BUCKETS if buckets is None else buckets
    if not 1 <= count <= MAX_BUCKETS:
        raise InvalidArgument(f"buckets must be 1 to {MAX_BUCKETS} (buckets={count}).")
    if since is not None and until is not None and since >= until:
        raise InvalidArgument(f"startTime must be before endTime (startTime={since}, endTime={until}).")
    return HistogramOptions(count, since, until)


def check_shards(buckets: int, shards: int) -> None:
    """Raises InvalidArgument for more buckets than are counted of a topic with so many shards."""
    if buckets * shards > MAX_SPANS:
        raise InvalidArgument(
            f"buckets must be at most {MAX_SPANS // shards} for a topic with {shards} shards (buckets={buckets})."
        )


def make_spans(start: datetime, end: datetime, *, buckets: int, shards: int) -> Spans:
    """Cuts a time into buckets, and these into the parts that are sampled."""
    probes = max(1, min(MAX_PROBES, MAX_SPANS // (buckets * shards)))
    count = buckets * probes
    step = max((end - start + (count - 1) * _STEP) // count, _STEP)  # rounded up: the last one ends behind the end
    starts = [start + number * step for number in range(count)]
    sample = max(1, MAX_BATCHES // (count * shards))
    return Spans(starts, [each + step for each in starts], step * probes, probes, sample)
