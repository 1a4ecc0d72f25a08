"""Runs the reads of read-only calls on a replica, if one is configured and close enough, or else on the primary
(L2).

    primary ──a pass finds that it follows, and is near──► replica
       ▲───it is away, behind, promoted, or no copy────────┘

A client never sees an older state on a replica than in an earlier answer: the primary reports its WAL position, and
the replica is read only once it has reached that.  A read that may be `late` does not wait for that; its data is at
most as old as the last check allows.  A read that fails on the replica is repeated on the primary.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TypeVar

from broker.db.driver.database import Database
from broker.db.driver.hot_connection import HotConnection
from broker.db.driver.replica import Replica, replayed, written
from broker.db.replica_lag import ReplicaLag, WalPoint
from broker.model.errors import BrokerError
from broker.observability.metrics.counters import Counters
from broker.observability.metrics.families import INSPECTION_READS
from broker.observability.state_changes import StateChanges

PASS_SECONDS = 1.0
_ANSWER_SECONDS = 3.0  # of the replica, in a pass
_PAUSES = (0.0, 0.005, 0.01, 0.02, 0.04, 0.08, 0.15, 0.2)  # seconds between checks of the replica's position
_TROUBLE = ("replicas", "")

T = TypeVar("T")
Query = Callable[[HotConnection], Awaitable[T]]

logger = logging.getLogger(__name__)


class _NotThereYet(Exception):
    """The replica has not replayed what the caller may know."""


class ReplicaReads:
    """Chooses where a process reads.  `run_once` is a pass; until the first one it reads on the primary."""

    def __init__(
        self,
        database: Database,
        replica: Replica | None = None,
        *,
        most_behind: float = 0.0,
        states: StateChanges | None = None,
        counters: Counters | None = None,
    ) -> None:
        """`most_behind`: seconds that the replica may be behind to be used."""
        self._database = database
        self._replica = replica
        self._most_behind = most_behind
        self._states = states or StateChanges()
        self._counts = (counters or Counters()).process
        self._lag = ReplicaLag(monotonic())
        self.in_use = False

    @property
    def has_replica(self) -> bool:
        return self._replica is not None

    @property
    def lag_seconds(self) -> float | None:
        """The upper bound of the replica's lag, in seconds; None: there is no replica."""
        return None if self._replica is None else self._lag.seconds(monotonic())

    async def read(self, query: Query[T], *, late: bool = False) -> T:
        """Runs `query(connection)`, which only reads, and may be run a second time.  Returns its result.

        Raises what it raises on the primary.
        """
        if self._replica is not None and self.in_use:
            try:
                found = await self._on_replica(self._replica, query, late=late)
            except (BrokerError, _NotThereYet) as error:
                logger.debug("the replica could not be read: %r", error)
            else:
                self._counts[INSPECTION_READS["replica"]] += 1
                return found
        if self._replica is not None:
            self._counts[INSPECTION_READS["primary"]] += 1
        async with self._database.hot() as connection:
            return await query(connection)

    async def _on_replica(self, replica: Replica, query: Query[T], *, late: bool) -> T:
        at = None
        if not late:
            async with self._database.hot() as connection:
                at = await written(connection)
        async with replica.hot() as connection:
            if at is not None:
                await _until_there(connection, at)
            return await query(connection)

    async def run_once(self) -> None:
        """Look where both are.  Raises a BrokerError if the primary does not say."""
        if self._replica is None:
            return
        async with self._database.hot() as connection:
            primary = await written(connection)
        is_ours = self._lag.primary_is_at(primary.lsn, monotonic())
        why = await self._why_not(self._replica, primary)
        if not why and not is_ours:
            why = "it has been where the primary never was: it follows another server"
        self.in_use = not why
        if why:
            self._states.begins(*_TROUBLE, "calls that look read the primary, for the replica cannot be used", why)
        else:
            self._states.ends(*_TROUBLE, "calls that look read the replica again")

    async def _why_not(self, replica: Replica, primary: WalPoint) -> str:
        """Why the replica cannot be used; "": it can."""
        try:
            async with asyncio.timeout(_ANSWER_SECONDS), replica.hot() as connection:
                there = await replayed(connection)
        except BrokerError:
            return replica.why_away or "it breaks off"
        except TimeoutError:
            return f"it does not answer for {_ANSWER_SECONDS:.0f} s"
        if there.system != primary.system:
            return "it is no copy of this database: only a standby that streams from it is one"
        if not there.follows:
            return "it follows no primary: it was promoted"
        self._lag.replica_is_at(there.lsn)
        behind = self._lag.seconds(monotonic())
        if behind > self._most_behind:
            return f"it is {behind:.0f} s behind, and may be {self._most_behind:g}"
        return ""

    async def close(self) -> None:
        """Closes the replica's connections; the database is its owner's to close."""
        if self._replica is not None:
            await self._replica.close()


async def _until_there(connection: HotConnection, at: WalPoint) -> None:
    """Raises _NotThereYet, unless a statement that comes next sees all that the primary had answered then."""
    for pause in _PAUSES:
        await asyncio.sleep(pause)
        there = await replayed(connection)
        if there.system != at.system or not there.follows:
            break
        if there.lsn >= at.lsn:
            return
    raise _NotThereYet
