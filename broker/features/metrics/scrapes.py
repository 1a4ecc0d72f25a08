"""Reads the metrics of the broker for a scrape."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from broker.core.context.storage_alarm import StorageAlarm
from broker.features.metrics.figures import Figures
from broker.observability.metrics.book import CounterBook, project_of
from broker.observability.metrics.counters import Counters
from broker.observability.metrics.gauges import GaugeValues, Storage


class Scrapes:
    """The scrapes of one process.  Each covers all processes of the broker."""

    def __init__(self, counters: Counters, figures: Figures, storage: StorageAlarm) -> None:
        self._counters = counters
        self._book = counters.book
        self._figures = figures
        self._storage = storage

    async def projects(self) -> set[str]:
        """Returns the projects that have series."""
        gauge_values = await self._figures.read()
        counted = (name for kind in ("topic", "subscription") for name, _ in self._book.names(kind))
        return {project_of(name) for name in (*counted, *gauge_values.subscriptions, *gauge_values.retained)} - {""}

    async def scrape(self, accept: str, may_read: Callable[[str], bool]) -> tuple[bytes, str]:
        """Returns the body in a format that `accept` allows, and its Content-Type.  BookCollector describes
        `may_read`.
        """
        # In a thread: with a thousand subscriptions it takes longer than calls should wait.
        gauge_values = replace(
            await self._figures.read(),
            storage=_storage(self._storage),
            certificate=self._counters.certificate(),
        )
        return await asyncio.to_thread(_expose, self._book, gauge_values, may_read, accept)


def _storage(alarm: StorageAlarm) -> Storage:
    """Returns the values of the storage limits.  They are present even if the database is not available, as a full
    disk may be the reason.
    """
    disk, tables = alarm.disk, alarm.tables
    return Storage(
        disk_free=disk.free if disk else None,
        disk_min_free=disk.min_free if disk else None,
        tables=tables.size if tables else None,
        tables_max=tables.max_size if tables else None,
        paused=bool(alarm.lows),
    )


def _expose(
    book: CounterBook, gauge_values: GaugeValues, may_read: Callable[[str], bool], accept: str
) -> tuple[bytes, str]:
    # A broker that nobody scrapes need not hold what makes texts of numbers.
    from broker.observability.metrics.exposition import BookCollector, expose

    return expose(BookCollector(book, may_read, gauge_values), accept)
