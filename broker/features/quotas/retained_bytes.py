"""Periodically measures the retained bytes of the projects that have a limit for them (E4).

The log of a shard is read once, as far back as its messages are needed, and later only its new messages.  So a
check costs what was published since the last one, a statement about cursors and attempts, and the scheduled
messages.  After a start of the process, and for projects that retain much, it takes several checks to read
everything; until then the measured bytes are too low.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import islice
from time import monotonic

from broker.core.process.database_clock import DatabaseClock
from broker.db.driver.database import Database
from broker.db.driver.hot_connection import HotConnection
from broker.features.quotas.quotas import Quotas
from broker.features.quotas.retained import Tally, span_of
from broker.features.quotas.retained_rows import Kept, read_kept, read_projects, sum_batches, sum_scheduled

REFRESH_SECONDS = 10.0
TICK_SECONDS = 1.0  # where much is published a check comes sooner, but not more often
READING_SECONDS = 5.0  # what a check may take to read what it does not know
_REST = 4.0  # times what the last check has taken: looks take a fifth of the time of one connection at most
_PROJECTS = 100  # in a statement
_SHARDS, _BATCHES = 50, 1_000  # in a statement, and of each shard: it ends long before its timeout
_WAITING = 10_000  # messages of each shard in a statement, likewise


class RetainedBytes:
    """`run_once` is a periodic worker's.  Of projects without a limit nothing is read."""

    def __init__(
        self,
        database: Database,
        clock: DatabaseClock,
        quotas: Quotas,
        *,
        ticks: Callable[[], float] = monotonic,
        batches: int = _BATCHES,
        waiting: int = _WAITING,
    ) -> None:
        """`batches`: of a shard in a statement; `waiting`: messages that wait for their time, likewise."""
        self._database = database
        self._clock = clock
        self._quotas = quotas
        self._ticks = ticks
        self._batches, self._waiting_at_once = batches, waiting
        self._tallies: dict[int, Tally] = {}  # by shard; only a check, which has the lock, touches them
        self._refreshing = asyncio.Lock()
        self._rests_until = self._due = 0.0

    async def run_once(self) -> int:
        """A check, if it is time for one, or a project nears its limit; and the last one has not taken long.

        Returns how many projects have a limit; 0 without a check.
        """
        now = self._ticks()
        if now < self._rests_until or (now < self._due and not self._quotas.is_pressing()):
            return 0
        return await self.refresh()

    async def refresh(self) -> int:
        """Find out what projects retain, and tell the quotas.  Raises a BrokerError."""
        async with self._refreshing:
            begun = self._ticks()
            projects = await self._projects()
            if projects:
                await self._refresh(projects, until=begun + READING_SECONDS)
            else:
                self._tallies.clear()
            now = self._ticks()
            self._rests_until, self._due = now + _REST * (now - begun), now + REFRESH_SECONDS
        return len(projects)

    async def _projects(self) -> list[str]:
        by_default, limited, free = self._quotas.limited_in_retained()
        if by_default:
            async with self._database.hot() as connection:
                limited |= {*await read_projects(connection)} - free
        return sorted(limited)

    async def _refresh(self, projects: Sequence[str], *, until: float) -> None:
        seen: set[int] = set()
        for start in range(0, len(projects), _PROJECTS):
            some, now = projects[start : start + _PROJECTS], self._clock.now()
            async with self._database.hot() as connection:
                all_kept = await read_kept(connection, projects=some, now=now)
                for kept in all_kept:
                    self._prepare(kept, span_of(now))
                await self._read(connection, all_kept, until=until)
                waiting = await self._waiting(connection, all_kept, until=until)
            seen.update(kept.shard_id for kept in all_kept)
            bytes_kept = dict.fromkeys(some, 0)
            for kept in all_kept:
                bytes_kept[kept.project] += self._tallies[kept.shard_id].kept(kept.since, kept.spans)
                bytes_kept[kept.project] += waiting.get(kept.shard_id, 0)
            for project, size in bytes_kept.items():
                self._quotas.retains(project, size)
        self._tallies = {shard_id: tally for shard_id, tally in self._tallies.items() if shard_id in seen}

    def _prepare(self, kept: Kept, latest: int) -> None:
        """Have a tally that begins with the oldest that is wanted: anew if that was forgotten already."""
        first = min([latest, *kept.spans] if kept.since is None else [latest, kept.since, *kept.spans])
        tally = self._tallies.get(kept.shard_id)
        if tally is None or first < tally.first:
            self._tallies[kept.shard_id] = Tally(first)
        else:
            tally.forget_before(first)

    async def _read(self, connection: HotConnection, all_kept: Sequence[Kept], *, until: float) -> None:
        """Reads the new part of the logs, as far as there is time."""
        heads = {kept.shard_id: kept.head for kept in all_kept}
        behind = [shard_id for shard_id, head in heads.items() if self._tallies[shard_id].seq < head]
        while behind and self._ticks() < until:
            some, behind = behind[:_SHARDS], behind[_SHARDS:]
            tallies = {shard_id: self._tallies[shard_id] for shard_id in some}
            more = await sum_batches(connection, tallies, limit=self._batches)
            for shard_id in tallies.keys() - more:
                tallies[shard_id].caught_up(heads[shard_id])
            behind += more

    async def _waiting(
        self, connection: HotConnection, all_kept: Sequence[Kept], *, until: float
    ) -> dict[int, int]:
        """Returns the bytes of scheduled messages by shard, as far as there is time to read them.

        Each check reads them anew, since scheduled messages may also be cancelled.
        """
        found: dict[int, int] = {}
        rest = dict.fromkeys((kept.shard_id for kept in all_kept), 0)
        while rest and self._ticks() < until:
            some = dict(islice(rest.items(), _SHARDS))
            sizes, more = await sum_scheduled(connection, some, limit=self._waiting_at_once)
            for shard_id, size in sizes.items():
                found[shard_id] = found.get(shard_id, 0) + size
            rest = {shard_id: after for shard_id, after in rest.items() if shard_id not in some} | more
        return found
