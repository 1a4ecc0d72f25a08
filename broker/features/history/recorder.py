"""Records every ten seconds what a broker has counted, and how far its subscriptions are behind.

    counters in shared memory ──► what was added since ──► one statement for all series, a row for 128 of them

One process of a broker records for all of them, because their counters are in memory that their parent holds.  If
that process is killed, the counts since its last record are lost.
"""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from broker.core.context.core import Core
from broker.features.history.history_metrics import (
    COLUMNS,
    GAUGES,
)
from broker.features.history.rows import (
    ALL_WRITERS,
    USED_AGAIN,
    SeriesKey,
    find_series,
    has_points,
    insert_points,
    read_lag,
)
from broker.model.errors import BrokerError
from broker.model.history_tiers import EPOCH, FINEST, SECOND, floor
from broker.model.names import project_of
from broker.observability.metrics.deltas import Counted, CounterDeltas

PERIOD = FINEST.resolution * SECOND
SAMPLED_SINCE = timedelta(minutes=5)  # a sample of a lag that is older says nothing of now
_CLOSE_SECONDS = 2.0
_KEYS_AT_ONCE = 2_000  # series that are looked up in one statement
_ITEMS_AT_ONCE = 2_000  # counters that one step of the event loop treats
_STEP_COST = 500_000  # of such a step, in the unit of LoopTurns


@dataclass(slots=True)
class _Unwritten:
    """Counts that may not have been written.

    `series_id`, `start_time`: identify the points of the last statement, which may have been committed (None: there
    was no statement).
    """

    counted: Counter[Counted]
    series_id: int | None = None
    start_time: datetime | None = None


class HistoryRecorder:
    """A recorder of the counters of all processes of a broker.  Only the first process has one."""

    def __init__(self, core: Core) -> None:
        self._database = core.database
        self._clock = core.clock
        self._turns = core.loop_turns
        counters: dict[str, list[tuple[int, int]]] = {}
        for number, column in enumerate(COLUMNS):
            counters.setdefault(column.metric.kind, []).append((column.slot, number))
        self._deltas = CounterDeltas(core.counters.book, counters)
        self._unwritten = _Unwritten(Counter())
        self._writer = random.getrandbits(62) + 1
        self._recorded = EPOCH  # the start of the period that was recorded last
        self._series: dict[Counted, int] = {}
        self._series_since: datetime | None = None  # since when ids are remembered

    async def run(self) -> None:
        """Records each period of ten seconds once it is over.  Raises Unavailable."""
        while True:
            now = self._clock.now()
            await asyncio.sleep((floor(now, FINEST.resolution) + PERIOD - now).total_seconds())
            start_time = floor(self._clock.now(), FINEST.resolution) - PERIOD
            if start_time > self._recorded:  # else the sleep ended early, or the clock was set back
                self._recorded = start_time
                await self.record(start_time)

    async def close(self) -> None:
        """Records the counts of the unfinished period, as the process stops."""
        with contextlib.suppress(BrokerError, TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self.record_counters(floor(self._clock.now(), FINEST.resolution))

    def forget(self, name: str | None) -> None:
        """Forgets the ids of the series of a resource that has changed, or of all (None), because a reset deletes
        series.
        """
        if name is None:
            self._series.clear()
            return
        for resource in (name, "/".join(name.split("/")[:2])):
            for number in range(len(COLUMNS) + len(GAUGES)):
                self._series.pop((resource, number), None)

    async def record(self, start_time: datetime) -> None:
        """Records a period: what was counted since the last call, and the newest samples of lags."""
        await self.record_counters(start_time)
        await self.record_lag(start_time)

    async def record_counters(self, start_time: datetime) -> None:
        """Writes what was counted since the last call as points that begin at `start_time`.

        Raises Unavailable; the next call then writes these counts, once.
        """
        if await self._is_written(self._unwritten):
            self._unwritten = _Unwritten(Counter())
        unwritten = self._unwritten
        unwritten.counted.update(await self._turns.run("history", self._deltas.read()))
        if unwritten.counted:
            by_id = await self._with_ids(await self._turns.run("history", _with_projects(unwritten.counted)))
            unwritten.series_id, unwritten.start_time = min(by_id), start_time
            async with self._database.hot() as connection:
                await insert_points(connection, by_id, start_time=start_time, writer=self._writer, is_gauge=False)
            self._unwritten = _Unwritten(Counter())

    async def record_lag(self, start_time: datetime) -> None:
        """Writes how far subscriptions are behind, unless another broker has.  Raises Unavailable."""
        async with self._database.connection() as connection:
            rows = await read_lag(connection, since=start_time - SAMPLED_SINCE, start_time=start_time)
        if rows:
            by_id = await self._with_ids(await self._turns.run("history", _gauges(rows)))
            async with self._database.hot() as connection:
                await insert_points(connection, by_id, start_time=start_time, writer=ALL_WRITERS, is_gauge=True)

    async def _is_written(self, unwritten: _Unwritten) -> bool:
        """Returns whether points whose statement got no response were committed."""
        if unwritten.series_id is None or unwritten.start_time is None:
            return False
        async with self._database.hot() as connection:
            return await has_points(
                connection, series_id=unwritten.series_id, start_time=unwritten.start_time, writer=self._writer
            )

    async def _with_ids(self, amounts: Mapping[Counted, int]) -> dict[int, int]:
        """Returns the amounts by the ids of their series, which are read once a day."""
        now = self._clock.now()
        if self._series_since is None or now - self._series_since > USED_AGAIN:
            self._series, self._series_since = {}, now
        known = self._series
        while missing := list(islice((each for each in amounts if each not in known), _KEYS_AT_ONCE)):
            keys = {_series_key(each): each for each in missing}
            async with self._database.hot() as connection:
                found = await find_series(connection, list(keys), now=now)
            known.update((keys[key], series_id) for key, series_id in found.items())
        return {known[each]: amount for each, amount in amounts.items()}


def _series_key(counted: Counted) -> SeriesKey:
    resource, number = counted
    metric, label, _ = COLUMNS[number] if number < len(COLUMNS) else (GAUGES[number - len(COLUMNS)], "", 0)
    return SeriesKey(resource, metric.name, label)


def _with_projects(counted: Mapping[Counted, int]) -> Generator[int, None, Mapping[Counted, int]]:
    """Adds the amounts of projects to those of their topics and subscriptions, in steps."""
    found: dict[Counted, int] = {}
    projects: Counter[Counted] = Counter()
    for place, (each, amount) in enumerate(counted.items()):
        if not place % _ITEMS_AT_ONCE:
            yield _STEP_COST
        name, number = each
        if "\0" not in name:  # callers name what cannot exist, and PostgreSQL refuses it
            found[each] = amount
            projects[project_of(name), number] += amount
    return {**found, **projects}


def _gauges(rows: Sequence[tuple[str, int, int, int, int, int]]) -> Generator[int, None, Mapping[Counted, int]]:
    """Returns the gauges of subscriptions and of their projects, in steps; gauges of 0 are left out."""
    found: Counter[Counted] = Counter()
    for place, (name, *values) in enumerate(rows):
        if not place % _ITEMS_AT_ONCE:
            yield _STEP_COST
        for number, (metric, value) in enumerate(zip(GAUGES, values, strict=True), len(COLUMNS)):
            if value:
                found[name, number] = value
                of_project = project_of(name), number
                before = found[of_project]
                found[of_project] = max(before, value) if metric.is_age else before + value
    return found
