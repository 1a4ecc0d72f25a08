"""Charts as SVG, drawn by the server: lines over time, and how messages are spread over a log.

A chart answers the question of its title.  Its axis begins at zero, and the same figures are in a table.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from broker.console import formats
from broker.console.api import Json
from broker.model.durations import parse_duration

WIDTH, HEIGHT = 320, 64
TIMELINE_WIDTH, TIMELINE_HEIGHT, BUCKETS = 960, 96, 60
HOUR = "1h"
# The ranges that a page offers: seconds, and seconds of a point.
RANGES = {
    "15m": (900, 10),
    HOUR: (3_600, 60),
    "6h": (21_600, 600),
    "24h": (86_400, 1_800),
    "14d": (1_209_600, 21_600),
}
DEFAULT_RANGE = HOUR
UNWRITTEN = timedelta(seconds=25)  # before now: a point that is missing there may still come, and is not a zero


class Point(NamedTuple):
    """A value of the period that ends at `end`, in text as well."""

    end: str
    value: float
    text: str


class Mark(NamedTuple):
    """A mark of a project: its time and text, and its place across a chart."""

    x: float
    time: str
    text: str


class Line(NamedTuple):
    """A line chart: the `path` of its line within WIDTH and HEIGHT, its points, the oldest first, and marks."""

    title: str
    points: Sequence[Point]
    path: str
    most: str
    marks: Sequence[Mark] = ()


class Bar(NamedTuple):
    """A bar of a timeline: its place in the drawing, and what it stands for."""

    x: float
    y: float
    width: float
    height: float
    start: str
    messages: int
    size: int
    is_pending: bool = False


class Timeline(NamedTuple):
    """The messages of a log by their publish time.

    `cursor`: where the oldest message is that a subscription has not acknowledged (None: it has no such message).
    """

    bars: Sequence[Bar]
    start: str
    end: str
    messages: int
    size: int
    cursor: float | None = None


def value_of(point: Json) -> float:
    """Return the value of a point of a time series."""
    return float(next(iter(point["value"].values())))


def line(answer: Json, title: str, *, is_rate: bool = False, marks: Iterable[Json] = ()) -> Line:
    """Draw a time series of the API, and marks.  `is_rate`: divide what was counted by the seconds of a point."""
    step = parse_duration(answer["alignmentPeriod"], "alignmentPeriod").total_seconds()
    start, end = (datetime.fromisoformat(answer["interval"][name]) for name in ("startTime", "endTime"))
    values: dict[datetime, float] = {}
    for series in answer.get("timeSeries", ()):
        for point in series["points"]:
            at = datetime.fromisoformat(point["interval"]["endTime"])
            value = value_of(point)
            values[at] = values.get(at, 0.0) + (value / step if is_rate else value)
    if values:
        first = min(values)
        while first > start:
            first -= timedelta(seconds=step)
        at = first
        while at <= end - UNWRITTEN:
            values.setdefault(at, 0.0)
            at += timedelta(seconds=step)
    most = max(values.values(), default=0.0)
    ends = sorted(at for at in values if at > start)
    points = [Point(at.isoformat(), values[at], formats.rate(round(values[at], 3))) for at in ends]
    span = max((end - start).total_seconds(), 1.0)
    across, up = WIDTH / span, (HEIGHT - 4) / (most or 1.0)
    places = [f"{(at - start).total_seconds() * across:.1f} {HEIGHT - values[at] * up:.1f}" for at in ends]
    drawn = [
        Mark(round((at - start).total_seconds() * across, 1), mark["time"], mark["text"])
        for mark in marks
        if start <= (at := datetime.fromisoformat(mark["time"])) <= end
    ]
    return Line(title, points, f"M{'L'.join(places)}" if places else "", formats.rate(round(most, 3)), drawn)


def timeline(answer: Json, *, pending_since: str = "") -> Timeline:
    """Draw a histogram of the API.

    `pending_since`: the publish time of the oldest message that a subscription has not acknowledged ("": none).
    """
    buckets = answer.get("buckets", [])
    most = max((int(bucket["messageCount"]) for bucket in buckets), default=0) or 1
    width = TIMELINE_WIDTH / max(len(buckets), 1)
    bars = []
    for index, bucket in enumerate(buckets):
        messages = int(bucket["messageCount"])
        height = max(messages / most * (TIMELINE_HEIGHT - 4), 2.0) if messages else 0.0
        bars.append(
            Bar(
                round(index * width, 1),
                round(TIMELINE_HEIGHT - height, 1),
                round(max(width - 1, 0.5), 1),
                round(height, 1),
                bucket["startTime"],
                messages,
                int(bucket["byteCount"]),
                bool(pending_since) and _until(buckets, index, answer) > pending_since,
            )
        )
    return Timeline(
        bars,
        answer["startTime"],
        answer["endTime"],
        int(answer["messageCount"]),
        int(answer["byteCount"]),
        _place(pending_since, answer) if pending_since else None,
    )


def _until(buckets: Sequence[Json], index: int, answer: Json) -> str:
    """Return the time at which a bucket ends.  Times of the API are in order as texts are."""
    end: str = buckets[index + 1]["startTime"] if index + 1 < len(buckets) else answer["endTime"]
    return end


def _place(moment: str, answer: Json) -> float:
    start, end = datetime.fromisoformat(answer["startTime"]), datetime.fromisoformat(answer["endTime"])
    share = (datetime.fromisoformat(moment) - start) / max(end - start, timedelta(milliseconds=1))
    return round(min(max(share, 0.0), 1.0) * TIMELINE_WIDTH, 1)
