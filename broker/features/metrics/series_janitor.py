"""Series of resources that are gone leave the metrics, whether or not anybody scrapes."""

from broker.db.driver.database import Database
from broker.features.metrics.rows import find_names
from broker.observability.metrics.counters import Counters

SERIES_SECONDS = 30.0  # between two passes

_KINDS = ("topic", "subscription", "project")


class SeriesJanitor:
    """Empties entries of the counter book, which all processes of a broker share: one of them does it for all."""

    def __init__(self, database: Database, counters: Counters) -> None:
        self._database = database
        self._counters = counters

    async def run_once(self) -> None:
        """Note what is gone, and empty what has been gone for a while.  Raises Unavailable."""
        book = self._counters.book
        if not self._counters.is_first_process:
            return
        counted = {kind: [name for name, entry in book.names(kind) if entry] for kind in _KINDS}
        if not any(counted.values()):
            return
        async with self._database.transaction() as connection:
            for kind, names in counted.items():
                book.keep_only(kind, await find_names(connection, kind=kind, names=names) if names else ())
