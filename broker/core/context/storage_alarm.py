"""The storage alarm: whether the broker accepts messages, as far as this process knows.

docs/decisions/0062 explains the design.
"""

import threading

from broker.core.context.storage import DiskSpace, TableSize
from broker.fairness.refusal_pace import RefusalPace
from broker.model.errors import BrokerError, Unavailable


class StorageAlarm:
    """The storage alarm of a process.  Code that adds messages checks `is_raised` first, which costs one attribute.

    The parent process measures the disk and reports it (cli/server/disk_watch.py); a thread of this process
    receives the reports and calls `report_disk` and `report_outage`. core/retention/table_sizes.py calls
    `report_tables`.
    """

    def __init__(self) -> None:
        self.is_raised = False
        self.disk: DiskSpace | None = None  # None: not watched
        self.tables: TableSize | None = None
        self.outage = ""  # why the embedded PostgreSQL does not run; "": it runs
        self._changing = threading.Lock()
        self._pace = RefusalPace()

    def report_disk(self, space: DiskSpace) -> None:
        with self._changing:
            self.disk = space
            self._update()

    def report_tables(self, size: TableSize) -> None:
        with self._changing:
            self.tables = size
            self._update()

    def report_outage(self, why: str) -> None:
        """`why` the embedded PostgreSQL does not run; "": it runs."""
        with self._changing:
            self.outage = why
            self._update()

    def _update(self) -> None:
        self.is_raised = bool(self.lows or self.outage)

    @property
    def lows(self) -> list[DiskSpace | TableSize]:
        """The limits that are passed just now."""
        return [each for each in (self.disk, self.tables) if each is not None and each.is_low]

    def warnings(self) -> list[str]:
        """Returns warnings for readiness.

        Publishing is paused and everything else goes on, so the broker stays ready.
        """
        return [low.refusal().message for low in self.lows]

    def refusal(self) -> BrokerError | None:
        """Why nothing is added just now; None: it is."""
        for low in self.lows:
            return low.refusal()
        return self.unavailable()

    def unavailable(self) -> Unavailable | None:
        """Returns the error for the outage of the embedded PostgreSQL; None: it runs."""
        return Unavailable(f"The embedded PostgreSQL does not run: {self.outage}.") if self.outage else None

    async def pace(self, project: str) -> None:
        """Wait before a refusal, so that a project that keeps calling is refused no faster than by its quotas."""
        await self._pace.wait(project)
