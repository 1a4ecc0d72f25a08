"""Histograms of a topic's log: messages and bytes by publish time (F3)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from broker.model.errors import InvalidArgument

DEFAULT_BUCKETS = 60
MAX_BUCKETS = 500
MAX_SPANS = 10_000  # buckets times shards: each takes some index lookups
MAX_BATCHES = 20_000  # batches that a call reads to measure bytes
MAX_PROBES = 4  # spans of a bucket, each sampled separately

_STEP = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class HistogramOptions:
    """Options of a histogram with `buckets` buckets of equal width, which begins at `since` (None: at the oldest
    message) and ends before `until` (None: now).
    """

    buckets: int = DEFAULT_BUCKETS
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Bucket:
    """The messages that were published within one width of the histogram from `start` on."""

    start: datetime
    messages: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Histogram:
    """A histogram.

    `is_estimate`: the log has too many batches to read all, so bytes are extrapolated from samples.
    """

    start: datetime
    end: datetime
    width: timedelta
    buckets: Sequence[Bucket]
    is_estimate: bool


@dataclass(frozen=True, slots=True)
class Spans:
    """The spans of time that are measured: `probes` for each bucket, each with a sample of at most `sample`
    batches.
    """

    starts: Sequence[datetime]
    ends: Sequence[datetime]
    width: timedelta
    probes: int
    sample: int


def parse_histogram(buckets: int | None, *, since: datetime | None, until: datetime | None) -> HistogramOptions:
    """Returns the options of a histogram.  Raises InvalidArgument."""
    count = DEFAULT_BUCKETS if buckets is None else buckets
    if not 1 <= count <= MAX_BUCKETS:
        raise InvalidArgument(f"buckets must be 1 to {MAX_BUCKETS} (buckets={count}).")
    if since is not None and until is not None and since >= until:
        raise InvalidArgument(f"startTime must be before endTime (startTime={since}, endTime={until}).")
    return HistogramOptions(count, since, until)


def check_shards(buckets: int, shards: int) -> None:
    """Raises InvalidArgument for more buckets than can be counted for a topic with so many shards."""
    if buckets * shards > MAX_SPANS:
        raise InvalidArgument(
            f"buckets must be at most {MAX_SPANS // shards} for a topic with {shards} shards (buckets={buckets})."
        )


def make_spans(start: datetime, end: datetime, *, buckets: int, shards: int) -> Spans:
    """Divides the time of a histogram into buckets, and each bucket into the spans that are sampled."""
    probes = max(1, min(MAX_PROBES, MAX_SPANS // (buckets * shards)))
    count = buckets * probes
    step = max((end - start + (count - 1) * _STEP) // count, _STEP)  # rounded up: the last one ends after the end
    starts = [start + number * step for number in range(count)]
    sample = max(1, MAX_BATCHES // (count * shards))
    return Spans(starts, [each + step for each in starts], step * probes, probes, sample)
