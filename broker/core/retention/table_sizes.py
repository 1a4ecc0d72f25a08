"""Compares the size of the broker's tables with --database-size-max.

One process of all brokers measures, every five seconds at most, and less often if measuring takes long.  The others
read its result.
"""

from collections.abc import Callable
from datetime import timedelta
from time import monotonic

from broker.core.context.core import Core
from broker.core.context.storage import TableSize, are_tables_full
from broker.core.retention import table_size_rows as store
from broker.core.retention.table_size_rows import Measured
from broker.db.driver.database import Connection
from broker.db.driver.table_changes import measure_tables

PASS_SECONDS = 5.0
_REST = 20.0  # the pause, as a multiple of the measuring time: at most a twentieth of one connection's time
_TABLES = ("storage limits", "tables")


class TableSizes:
    """`run_once` is a periodic worker's.  Without a limit nothing is measured or read."""

    def __init__(self, core: Core, *, max_bytes: int, ticks: Callable[[], float] = monotonic) -> None:
        """`max_bytes`: the limit; 0: none."""
        self._database = core.database
        self._clock = core.clock
        self._alarm = core.storage
        self._states = core.states
        self._max_bytes = max_bytes
        self._ticks = ticks

    async def run_once(self) -> None:
        """Read the last measurement, or measure if it is time to.  Raises a BrokerError."""
        if not self._max_bytes:
            return
        async with self._database.connection() as connection:
            measured = await store.read_measured(connection, max_bytes=self._max_bytes)
            if measured is None or measured.next_at <= self._clock.now():
                measured = await self._measure(connection) or measured
        if measured is not None:
            self._report(TableSize(measured.size_bytes, self._max_bytes, measured.is_full))

    async def _measure(self, connection: Connection) -> Measured | None:
        """None: another process does."""
        async with connection.transaction():
            if not await store.is_our_turn_to_measure(connection):
                return None
            before = await store.read_measured(connection, max_bytes=self._max_bytes)
            began = self._ticks()
            size = await measure_tables(connection)
            seconds = max(PASS_SECONDS / 2, _REST * (self._ticks() - began))
            now = self._clock.now()
            is_full = are_tables_full(size, self._max_bytes, were_full=before is not None and before.is_full)
            measured = Measured(size, is_full, now + timedelta(seconds=seconds))
            await store.write_measured(connection, measured, max_bytes=self._max_bytes, now=now)
        return measured

    def _report(self, size: TableSize) -> None:
        self._alarm.report_tables(size)
        if size.is_low:
            self._states.begins(*_TABLES, "publishing is paused", f"{size.finding} To resume, {size.remedy}")
        else:
            self._states.ends(*_TABLES, f"publishing is resumed: {size.measured}")
