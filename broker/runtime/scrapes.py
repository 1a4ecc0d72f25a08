"""What a scrape of the broker reads."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from broker.runtime.figures import Figures
from broker.telemetry.metrics.book import CounterBook, project_of
from broker.telemetry.metrics.counters import Counters
from broker.telemetry.metrics.standings import Standings


class Scrapes:
    """Of all processes of this broker, whichever is asked."""

    def __init__(self, counters: Counters, figures: Figures) -> None:
        self._counters = counters
        self._book = counters.book
        self._figures = figures

    async def projects(self) -> set[str]:
        """Those that have series."""
        standings = await self._figures.read()
        counted = (name for kind in ("topic", "subscription") for name, _ in self._book.names(kind))
        return {project_of(name) for name in (*counted, *standings.subscriptions, *standings.retained)} - {""}

    async def scrape(self, accept: str, may_read: Callable[[str], bool]) -> tuple[bytes, str]:
        """The body in a format that is accepted, and its Content-Type; see BookCollector for `may_read`."""
        # In a thread: with a thousand subscriptions it takes longer than calls should wait.
        standings = replace(await self._figures.read(), certificate=self._counters.certificate())
        return await asyncio.to_thread(_expose, self._book, standings, may_read, accept)


def _expose(
    book: CounterBook, standings: Standings, may_read: Callable[[str], bool], accept: str
) -> tuple[bytes, str]:
    # A broker that nobody scrapes need not hold what makes texts of numbers.
    from broker.telemetry.metrics.exposition import BookCollector, expose

    return expose(BookCollector(book, may_read, standings), accept)
