"""Reads history."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from broker.core.process.database_clock import DatabaseClock
from broker.core.resources.subscription_service import existing_subscription
from broker.core.resources.topic_service import existing_topic
from broker.db.driver.database import Database
from broker.db.driver.hot_connection import HotConnection
from broker.features.history.history_metrics import METRICS, Metric, find_metrics
from broker.features.history.rows import (
    Point,
    SeriesKey,
    Span,
    list_series,
    list_series_of_resources,
    read_points,
    read_progress,
)
from broker.model.durations import format_duration, format_units
from broker.model.errors import InvalidArgument
from broker.model.history_tiers import COARSEST, FINEST, SECOND, TIERS, floor
from broker.model.names import check_project, check_shape, project_of
from broker.model.timestamps import format_timestamp

DEFAULT_INTERVAL = timedelta(hours=1)
EACH = "-"  # in place of an id: each resource of the project
MAX_SERIES = 1_000  # of a list of each resource


class Interval(NamedTuple):
    """The time that a caller asks for, from `start` up to but not including `end` (None: now).

    `start` None: the interval begins `length` before its end.
    """

    start: datetime | None = None
    end: datetime | None = None
    length: timedelta = DEFAULT_INTERVAL


class Window(NamedTuple):
    """The time between `start`, at which a period starts, and `end`, in periods of `period` seconds."""

    start: datetime
    end: datetime
    period: int


@dataclass(frozen=True, slots=True)
class TimeSeries:
    """The points of one series, the newest first.  `label`: the value of the metric's label."""

    resource: str
    metric: Metric
    label: str
    points: Sequence[Point]


@dataclass(frozen=True, slots=True)
class History:
    """The history of metrics in a window."""

    metrics: Sequence[Metric]
    window: Window
    series: Sequence[TimeSeries]


class HistoryService:
    """The history of metrics.  It only reads."""

    def __init__(self, database: Database, clock: DatabaseClock) -> None:
        self._database = database
        self._clock = clock

    async def list_time_series(
        self,
        project: str,
        *,
        metrics: Sequence[str],
        resource: str,
        interval: Interval,
        alignment: timedelta | None,
    ) -> History:
        """Returns the history of metrics of a topic or subscription, or ("") of all of the project together.

        `alignment`: the length of each period (None: the finest in which the whole interval is kept).  Raises
        InvalidArgument, NotFound, Unavailable.
        """
        check_project(project)
        found = find_metrics(metrics)
        name = resource or project
        for metric in found:
            _check_resource(name, metric, project)
        window = _window(interval, alignment, self._clock.now())
        async with self._database.hot() as connection:
            keys = await list_series(connection, resource=name, metrics=[metric.name for metric in found])
            history = await _read(connection, keys, found, window)
        if not keys and name != project:
            await self._check_exists(name)
        return history

    async def list_of_each(
        self,
        project: str,
        *,
        metric: str,
        resource: str,
        label: str,
        interval: Interval,
        alignment: timedelta | None,
    ) -> History:
        """Returns the history of a metric of each topic or subscription of a project, of at most MAX_SERIES series.

        `resource`: the name of one of them with EACH in place of its id.  `label`: only series with this value of
        the metric's label ("": all).  Raises InvalidArgument, Unavailable.
        """
        check_project(project)
        [found] = find_metrics([metric])
        if resource != f"{project}/{found.kind}s/{EACH}":
            raise _not_of_kind(resource, found, project)
        window = _window(interval, alignment, self._clock.now())
        async with self._database.hot() as connection:
            keys = await list_series_of_resources(
                connection, prefix=resource.removesuffix(EACH), metric=found.name, label=label, most=MAX_SERIES
            )
            return await _read(connection, keys, [found], window)

    async def _check_exists(self, name: str) -> None:
        """Raises NotFound."""
        async with self._database.transaction() as connection:
            if name.split("/")[2] == "topics":
                await existing_topic(connection, name)
            else:
                await existing_subscription(connection, name)


async def _read(
    connection: HotConnection, keys: Mapping[int, SeriesKey], metrics: Sequence[Metric], window: Window
) -> History:
    """Returns the history of the series with these ids, by metric, resource and label."""
    points: dict[int, list[Point]] = {}
    if keys:
        spans = _spans(await read_progress(connection), window)
        for point in await read_points(connection, sorted(keys), period=window.period, spans=spans):
            points.setdefault(point.series_id, []).append(point)
    series = [
        TimeSeries(key.resource, METRICS[key.metric], key.label, points[series_id])
        for series_id, key in keys.items()
        if series_id in points
    ]
    series.sort(key=lambda one: (metrics.index(one.metric), one.resource, one.label))
    return History(metrics, window, series)


def _check_resource(name: str, metric: Metric, project: str) -> None:
    """Raises InvalidArgument unless the resource belongs to the project and is of the kind that has the metric."""
    if name == project:
        return
    collection = f"{metric.kind}s"
    parts = name.split("/")
    if len(parts) != 4 or parts[2] != collection or project_of(name) != project:
        raise _not_of_kind(name, metric, project)
    check_shape(name, collection)


def _not_of_kind(name: str, metric: Metric, project: str) -> InvalidArgument:
    collection = f"{metric.kind}s"
    return InvalidArgument(
        f"Invalid value at 'resource': {name[:300]!r} must be {project}/{collection}/ID, because {metric.name} "
        f"is counted of {collection}, or {project}."
    )


def _window(interval: Interval, alignment: timedelta | None, now: datetime) -> Window:
    """Returns the window of an interval, whose start is moved back to that of a period.  Raises InvalidArgument."""
    start, end = _bounds(interval, now)
    period = _check_period(alignment, start, now)
    return Window(floor(start, period), end, period)


def _bounds(interval: Interval, now: datetime) -> tuple[datetime, datetime]:
    """Returns the start and end of an interval.  Raises InvalidArgument unless history is kept
    from its start on.
    """
    end = now if interval.end is None else min(interval.end, now)
    # A length may be longer than there are dates.
    length = min(interval.length, 2 * COARSEST.kept)
    start = end - length if interval.start is None else interval.start
    if start >= end:
        raise InvalidArgument(
            "Invalid value at 'interval': it must begin before it ends and before now "
            f"({format_timestamp(start)}, {format_timestamp(end)})."
        )
    if start < now - COARSEST.kept - SECOND:
        raise InvalidArgument(
            f"Invalid value at 'interval': it must begin at most {_in_words(COARSEST.kept)} ago, because history "
            "is kept for that long."
        )
    return start, end


def _check_period(alignment: timedelta | None, start: datetime, now: datetime) -> int:
    """Returns the seconds of a period.  Raises InvalidArgument unless points from `start` on are kept at this
    resolution.
    """
    kept = next((tier for tier in TIERS if start >= now - tier.kept - SECOND), COARSEST)
    if alignment is None:
        return kept.resolution
    period = alignment // SECOND
    if alignment % (FINEST.resolution * SECOND) or period < kept.resolution or period % kept.resolution:
        raise InvalidArgument(
            f"Invalid value at 'alignmentPeriod': {format_duration(alignment)} must be a multiple of "
            f"{kept.resolution}s for an interval that begins {_in_words(now - start)} ago."
        )
    if period > COARSEST.kept // SECOND:
        raise InvalidArgument(
            f"Invalid value at 'alignmentPeriod': {format_duration(alignment)} must be at most "
            f"{format_duration(COARSEST.kept)}."
        )
    return period


def _spans(progress: Mapping[int, datetime], window: Window) -> Sequence[Span]:
    """Returns the points to read: the coarsest that fit the period, and finer ones for the time that those do not
    cover yet.
    """
    start, end, period = window
    spans, covered = [], start
    for resolution in (tier.resolution for tier in reversed(TIERS)):
        if period % resolution:
            continue
        until = end
        if resolution != FINEST.resolution:
            newest = progress.get(resolution)
            until = covered if newest is None else min(newest + resolution * SECOND, end)
        if until > covered:
            spans.append(Span(resolution, covered, until))
            covered = until
    return spans


def _in_words(value: timedelta) -> str:
    return format_units(value, most=2)
