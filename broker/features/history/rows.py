"""The statements that write and read history."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from broker.db.driver import statements
from broker.db.driver.database import Connection
from broker.db.driver.hot_connection import HotConnection
from broker.model.history_tiers import CHUNK, COARSEST, FINEST, TIERS

ALL_WRITERS = 0
USED_AGAIN = timedelta(days=1)  # after which a series is asked for again, which notes that it is used
SERIES_DAYS = COARSEST.kept + 3 * USED_AGAIN  # since a series was noted as used, after which it has no point

_FIND_SERIES = statements.hot("find_history_series")
_INSERT_POINTS = statements.hot("insert_history_points")
_HAS_POINTS = statements.hot("has_history_points")
_LIST_SERIES = statements.hot("list_history_series")
_LIST_SERIES_OF_RESOURCES = statements.hot("list_series_of_resources")
_READ_PROGRESS = statements.hot("read_history_progress")
_READ_HISTORY = statements.hot("read_history")
_READ_LAG = statements.load("read_lag_for_history")
_FIND_TO_ROLL_UP = statements.load("find_points_to_roll_up")
_ROLL_UP = statements.load("roll_up_points")
_DELETE_OLD = statements.load("delete_old_points")
_DELETE_UNUSED = statements.load("delete_unused_series")


class SeriesKey(NamedTuple):
    """The key of a series.

    `resource`: the full name of a topic, subscription or project; `label`: the value of the metric's label.
    """

    resource: str
    metric: str
    label: str


class Point(NamedTuple):
    """A period of a series, from `start_time` on.  `amount`: what was added to a counter, or the highest value of a
    gauge.
    """

    series_id: int
    start_time: datetime
    amount: int


class Span(NamedTuple):
    """The points of one resolution between two times."""

    resolution: int
    since: datetime
    until: datetime


async def find_series(
    connection: HotConnection, keys: Sequence[SeriesKey], *, now: datetime
) -> Mapping[SeriesKey, int]:
    """Returns the ids of series, and creates missing ones; omits those that another transaction is creating."""
    asked = {
        "resources": [key.resource for key in keys],
        "metrics": [key.metric for key in keys],
        "labels": [key.label for key in keys],
        "now": now,
    }
    [rows] = await connection.run((_FIND_SERIES, asked))
    return {keys[row.place - 1]: row.series_id for row in rows}


async def insert_points(
    connection: HotConnection, amounts: Mapping[int, int], *, start_time: datetime, writer: int, is_gauge: bool
) -> None:
    """Writes an amount for each series, by id, for a period of the finest resolution."""
    series_ids = sorted(amounts)
    given = {
        "resolution": FINEST.resolution,
        "start_time": start_time,
        "writer": writer,
        "is_gauge": is_gauge,
        "series_ids": series_ids,
        "amounts": [amounts[each] for each in series_ids],
        "chunk_size": CHUNK,
    }
    await connection.run((_INSERT_POINTS, given))


async def has_points(connection: HotConnection, *, series_id: int, start_time: datetime, writer: int) -> bool:
    """Returns whether a writer has written points of counters that begin at a time, in the chunk of a series."""
    asked = {
        "resolution": FINEST.resolution,
        "chunk": series_id // CHUNK,
        "start_time": start_time,
        "writer": writer,
        "is_gauge": False,
    }
    [[row]] = await connection.run((_HAS_POINTS, asked))
    return bool(row.is_there)


async def read_lag(
    connection: Connection, *, since: datetime, start_time: datetime
) -> Sequence[tuple[str, int, int, int, int, int]]:
    """Returns the lag of each subscription that has a backlog or dead letters, as it was sampled since a time: its
    name, undelivered and outstanding messages, the age of the oldest in seconds, bytes, and dead letters.

    Returns nothing if gauges of the period have been recorded already.
    """
    asked = {"since": since, "start_time": start_time, "resolution": FINEST.resolution}
    return await (await connection.execute(_READ_LAG, asked)).fetchall()


async def list_series(
    connection: HotConnection, *, resource: str, metrics: Sequence[str]
) -> Mapping[int, SeriesKey]:
    """Returns the series of metrics of a resource, by their ids."""
    [rows] = await connection.run((_LIST_SERIES, {"resource": resource, "metrics": list(metrics)}))
    return {row.series_id: SeriesKey(resource, row.metric, row.label) for row in rows}


async def list_series_of_resources(
    connection: HotConnection, *, prefix: str, metric: str, label: str, most: int
) -> Mapping[int, SeriesKey]:
    """Returns the series of a metric of the resources whose names begin with `prefix`, by their ids.

    `label`: only those with this value of its label ("": all).
    """
    asked = {"prefix": prefix, "metric": metric, "label": label, "most": most}
    [rows] = await connection.run((_LIST_SERIES_OF_RESOURCES, asked))
    return {row.series_id: SeriesKey(row.resource, metric, row.label) for row in rows}


async def read_progress(connection: HotConnection) -> Mapping[int, datetime]:
    """Returns the start of the newest points of each resolution that has any."""
    [rows] = await connection.run((_READ_PROGRESS, {"resolutions": [tier.resolution for tier in TIERS]}))
    return {row.resolution: row.start_time for row in rows}


async def read_points(
    connection: HotConnection, series_ids: Sequence[int], *, period: int, spans: Sequence[Span]
) -> Sequence[Point]:
    """Returns the points of series in periods of `period` seconds, from all spans, by series
    and the newest first.
    """
    asked = {
        "series_ids": series_ids,
        "period": period,
        "resolutions": [span.resolution for span in spans],
        "since": [span.since for span in spans],
        "until": [span.until for span in spans],
        "chunk_size": CHUNK,
    }
    [rows] = await connection.run((_READ_HISTORY, asked))
    return [Point(row.series_id, row.start_time, row.amount) for row in rows]


async def find_points_to_roll_up(connection: Connection, *, resolution: int, period: int) -> datetime | None:
    """Returns the start of the first points of a resolution that have not been rolled up into periods of `period`
    seconds.
    """
    found = await connection.execute(_FIND_TO_ROLL_UP, {"resolution": resolution, "period": period})
    row = await found.fetchone()
    assert row is not None
    first: datetime | None = row[0]
    return first


async def roll_up(connection: Connection, span: Span, *, period: int) -> None:
    """Rolls the points of a span up into periods of `period` seconds."""
    given = {"resolution": span.resolution, "since": span.since, "until": span.until, "period": period}
    await connection.execute(_ROLL_UP, given)


async def delete_old_points(connection: Connection, *, resolution: int, before: datetime, limit: int) -> int:
    """Deletes up to `limit` rows of points from before a time.  Returns how many rows it deleted."""
    given = {"resolution": resolution, "before": before, "limit": limit}
    return (await connection.execute(_DELETE_OLD, given)).rowcount


async def delete_unused_series(connection: Connection, *, before: datetime, limit: int) -> int:
    """Deletes up to `limit` series that were last used before a time.  Returns how many it deleted."""
    return (await connection.execute(_DELETE_UNUSED, {"before": before, "limit": limit})).rowcount
