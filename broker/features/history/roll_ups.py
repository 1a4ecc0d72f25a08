"""Rolls points up into coarser ones, and deletes points that are no longer kept."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial

from broker.db.driver.database import Connection
from broker.features.history.rows import (
    SERIES_DAYS,
    Span,
    delete_old_points,
    delete_unused_series,
    find_points_to_roll_up,
    roll_up,
)
from broker.model.history_tiers import ROLL_UPS, SECOND, TIERS, floor

LATE = timedelta(seconds=60)  # within which the points of a period are written, by any process
_PERIODS_AT_ONCE = 10
_ROWS_AT_ONCE = 5_000


async def maintain_history(connection: Connection, *, now: datetime) -> None:
    """Rolls complete periods up, then deletes old points and series.

    Continues where the last call ended, however long ago that was.
    """
    until = now - LATE
    for tier, coarser in ROLL_UPS:
        period = coarser.resolution
        until = floor(until, period)
        while True:
            first = await find_points_to_roll_up(connection, resolution=tier.resolution, period=period)
            if first is None or first >= until:
                break
            since = floor(first, period)
            span = Span(tier.resolution, since, min(since + _PERIODS_AT_ONCE * period * SECOND, until))
            await roll_up(connection, span, period=period)
    for tier in TIERS:
        await _delete_all(
            partial(delete_old_points, connection, resolution=tier.resolution, before=now - tier.kept - LATE)
        )
    await _delete_all(partial(delete_unused_series, connection, before=now - SERIES_DAYS))


async def _delete_all(delete: Callable[..., Awaitable[int]]) -> None:
    while await delete(limit=_ROWS_AT_ONCE) == _ROWS_AT_ONCE:
        pass
