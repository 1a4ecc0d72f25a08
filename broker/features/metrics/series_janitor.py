"""Removes the series of deleted resources from the metrics, even if nothing scrapes the broker."""

from broker.db.driver.database import Database
from broker.features.metrics.rows import find_names
from broker.observability.metrics.counters import Counters

SERIES_SECONDS = 30.0  # between two passes

_KINDS = ("topic", "subscription", "project")


class SeriesJanitor:
    """A janitor of the counter book, which all processes of a broker share.  Only the first process empties its
    entries.
    """

    def __init__(self, database: Database, counters: Counters) -> None:
        self._database = database
        self._counters = counters

    async def run_once(self) -> None:
        """Marks the entries of deleted resources, and empties those marked REUSE_SECONDS ago
        (observability/metrics/book.py).

        Raises Unavailable.
        """
        book = self._counters.book
        if not self._counters.is_first_process:
            return
        counted = {kind: [name for name, entry in book.names(kind) if entry] for kind in _KINDS}
        if not any(counted.values()):
            return
        async with self._database.transaction() as connection:
            for kind, names in counted.items():
                book.keep_only(kind, await find_names(connection, kind=kind, names=names) if names else ())
