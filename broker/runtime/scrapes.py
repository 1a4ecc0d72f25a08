"""What a scrape of the broker reads."""

import asyncio
from collections.abc import Callable

from broker.telemetry.metrics.book import CounterBook, project_of


class Scrapes:
    """Of all processes of this broker, whichever is asked."""

    def __init__(self, book: CounterBook) -> None:
        self._book = book

    async def projects(self) -> set[str]:
        """Those that something was counted of."""
        names = (name for kind in ("topic", "subscription") for name, _ in self._book.names(kind))
        return {project_of(name) for name in names} - {""}

    async def scrape(self, accept: str, may_read: Callable[[str], bool]) -> tuple[bytes, str]:
        """The body in a format that is accepted, and its Content-Type; see BookCollector for `may_read`."""
        # In a thread: with a thousand subscriptions it takes longer than calls should wait.
        return await asyncio.to_thread(_expose, self._book, may_read, accept)


def _expose(book: CounterBook, may_read: Callable[[str], bool], accept: str) -> tuple[bytes, str]:
    # A broker that nobody scrapes need not hold what makes texts of numbers.
    from broker.telemetry.metrics.exposition import BookCollector, expose

    return expose(BookCollector(book, may_read), accept)
