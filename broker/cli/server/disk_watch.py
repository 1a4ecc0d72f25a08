"""Watches the free space of the embedded PostgreSQL's disk, in the parent process (docs/decisions/0062).

The parent alone measures and decides, so that all workers pause and resume publishing together, and so that it is
known while the database is away.
"""

import asyncio
import logging
import os
from collections.abc import Callable

from broker.core.context.storage import DiskSpace, default_min_free, is_disk_low
from broker.db.embedded.cluster import Cluster, ClusterError
from broker.observability.state_changes import StateChanges

CHECK_SECONDS = 0.2  # at 500 MB a second 100 MB are written in it
REPORT_SECONDS = 1.0  # how old the figures of workers are
_ENOUGH_FOR_CHECKPOINT = 64 << 20  # bytes: PostgreSQL ends itself if it has no room for one
_CHECKPOINT_SECONDS = 30.0  # between two checkpoints while space is low, unless much is written
_MUCH = 0.8  # of what was free at the last one is left
_DISK = ("storage limits", "disk")

logger = logging.getLogger(__name__)


class DiskWatch:
    """Measures the file system of a data directory and reports each change to the workers."""

    def __init__(
        self, cluster: Cluster, min_free: int | None, *, report: Callable[[DiskSpace], None], states: StateChanges
    ) -> None:
        """`min_free`: the limit in bytes; 0: none; None: by the size of the file system.

        Raises OSError if the file system cannot be measured.
        """
        self._cluster = cluster
        self._min_free = min_free
        self._report = report
        self._states = states
        self._checkpoint: asyncio.Task[None] | None = None
        self._checkpoint_at, self._free_then = float("-inf"), 0
        self.space = self._measure(was_low=False)

    async def run(self) -> None:
        """Measures the disk until it is cancelled."""
        loop = asyncio.get_running_loop()
        report_at, reported = 0.0, self.space
        self._log()
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                self.space = self._measure(was_low=self.space.is_low)
            except OSError as error:
                self._states.happens("storage limits", "statvfs", "the disk cannot be measured", str(error))
                continue
            now = loop.time()
            if self.space.is_low != reported.is_low or (now >= report_at and self.space != reported):
                self._report(self.space)
                report_at, reported = now + REPORT_SECONDS, self.space
                self._log()
            if self.space.is_low:
                self._give_wal_back(now)
            self._states.tick()

    def _measure(self, *, was_low: bool) -> DiskSpace:
        status = os.statvfs(self._cluster.directory)
        free, total = status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize
        limit = default_min_free(total) if self._min_free is None else self._min_free
        directory = str(self._cluster.directory)
        return DiskSpace(directory, free, limit, is_disk_low(free, limit, was_low=was_low))

    def _log(self) -> None:
        space = self.space
        if space.is_low:
            self._states.begins(*_DISK, "publishing is paused", f"{space.finding} To resume, {space.remedy}")
        else:
            self._states.ends(*_DISK, f"publishing is resumed: {space.measured}")

    def _give_wal_back(self, now: float) -> None:
        """Pulls and acks go on while space is low, and their WAL would take what is left until the next checkpoint
        that PostgreSQL makes by itself.
        """
        is_under_way = self._checkpoint is not None and not self._checkpoint.done()
        if is_under_way or self.space.free < _ENOUGH_FOR_CHECKPOINT:
            return
        if now - self._checkpoint_at < _CHECKPOINT_SECONDS and self.space.free > _MUCH * self._free_then:
            return
        self._checkpoint_at, self._free_then = now, self.space.free
        self._checkpoint = asyncio.create_task(asyncio.to_thread(self._make_checkpoint))

    def _make_checkpoint(self) -> None:
        try:
            self._cluster.checkpoint()
        except ClusterError as error:  # PostgreSQL may be down, for want of room
            logger.debug("no checkpoint could be made: %s", error)
