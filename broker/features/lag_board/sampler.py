"""Samples every subscription, so that lists of lags are cheap however many subscriptions there are.

Each process has a sampler, and only the one that has locked the row of `lag_passes` works.  A pass goes over all
subscriptions in the order of names.  A cheap query finds those that have a backlog or have changed, and only these
are sampled, one batch in a transaction.  When a project has been sampled, its orders are written.

    interval         ├───────────────────────────┤├──────…
    few subscriptions██                            ██
    many that lag    ██────────██────────██────────██──…   at most SHARE of the time of one connection

A pass that is interrupted continues where it was, in any process.

A subscription whose figures cannot be read keeps its last sample, and the others are sampled.  To find it, a batch
that fails is sampled in halves.  From then on it is sampled alone, until that succeeds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from time import monotonic

from broker.core.catalog.subscription_rows import read_subscriptions
from broker.core.lag.lags import AT_A_TIME, read_lags
from broker.core.process.database_clock import DatabaseClock
from broker.db.driver.database import Database, ResourceConnection
from broker.db.driver.replica_reads import ReplicaReads
from broker.features.lag_board import sample_rows as store
from broker.features.lag_board.sample import LagSample
from broker.features.lag_board.sample_rows import SamplePass, Window
from broker.model.names import leaf, project_of
from broker.observability.state_changes import StateChanges

LOOK_SECONDS = 1.0  # how often a process looks whether there is something to sample
SHARE = 0.2  # of the time of one connection, while there is more to sample than the interval has time for
_TURN_SECONDS = 0.2  # of work, then others have theirs
_UNREADABLE = "lags that cannot be read"
_WINDOW = 500  # subscriptions that are compared with what is new at once


class LagSampler:
    """The sampler of one process.  A periodic worker calls `run_once`."""

    def __init__(
        self,
        database: Database,
        clock: DatabaseClock,
        *,
        interval_seconds: float,
        states: StateChanges | None = None,
        ticks: Callable[[], float] = monotonic,
    ) -> None:
        """`interval_seconds`: the time from the beginning of a pass to that of the next one.  `states` reports
        subscriptions whose figures cannot be read.
        """
        self._states = states or StateChanges()
        self._unreadable: dict[int, str] = {}  # names of subscriptions that are sampled alone, by id
        self._database = database
        self._reads = ReplicaReads(database)  # the primary: figures are compared with what is new there
        self._clock = clock
        self._interval = timedelta(seconds=interval_seconds)
        self._ticks = ticks

    async def run_once(self) -> bool:
        """Continues a pass for a turn, if one is due.  Returns whether the pass is complete."""
        began = self._ticks()
        async with self._database.transaction() as connection:
            sample_pass = await store.take_pass(connection, now=self._clock.now())
            if sample_pass is None:
                return False
            is_complete = False
            while not is_complete and self._ticks() - began < _TURN_SECONDS:
                sample_pass, is_complete = await self._go_on(sample_pass)
            rest = timedelta(seconds=(self._ticks() - began) * (1 / SHARE - 1))
            next_at = self._clock.now() + rest
            if is_complete:
                next_at = max(next_at, sample_pass.began_at + self._interval)
                await self._forget_deleted(connection)
            await store.leave_pass(connection, sample_pass, is_complete=is_complete, next_at=next_at)
        return is_complete

    async def _go_on(self, sample_pass: SamplePass) -> tuple[SamplePass, bool]:
        """Samples some more subscriptions.  Returns how far the pass has come, and whether it is complete."""
        async with self._database.hot() as connection:
            window = await store.next_to_sample(connection, after=sample_pass.after, max_rows=_WINDOW)
        together = [id_ for id_ in window.due_ids if id_ not in self._unreadable]
        for first in range(0, len(together), AT_A_TIME):
            await self._sample_readable(sample_pass, window, together[first : first + AT_A_TIME])
        for id_ in self._unreadable.keys() & {*window.due_ids}:
            await self._sample_readable(sample_pass, window, [id_])
        after = f"{project_of(sample_pass.after)}/" if sample_pass.after else ""
        before = None if window.is_last else f"{project_of(window.last_name)}/"
        if before is None or after < before:
            async with self._database.transaction() as connection:
                began_at = sample_pass.began_at
                await store.write_orders(connection, after=after, before=before, began_at=began_at)
        return replace(sample_pass, after=window.last_name), window.is_last

    async def _sample_readable(
        self, sample_pass: SamplePass, window: Window, subscription_ids: Sequence[int]
    ) -> None:
        """Samples those of these subscriptions whose figures can be read.  Raises Unavailable."""
        try:
            await self._sample(sample_pass, window, subscription_ids)
        except Exception as error:  # a row that has what no broker writes, or a statement that takes too long
            names = await self._names_of(subscription_ids)  # Unavailable: no subscription is at fault
            if len(subscription_ids) > 1:
                middle = len(subscription_ids) // 2
                await self._sample_readable(sample_pass, window, subscription_ids[:middle])
                await self._sample_readable(sample_pass, window, subscription_ids[middle:])
                return
            for id_, name in names.items():
                self._unreadable[id_] = name
                what, why = f"the lag of {leaf(name)} cannot be read, and its last sample stays", str(error)
                self._states.begins(_UNREADABLE, name, what, why.rstrip(".") or type(error).__name__, error=error)
        else:
            for id_ in subscription_ids:
                if id_ in self._unreadable:
                    name = self._unreadable.pop(id_)
                    self._states.ends(_UNREADABLE, name, f"the lag of {leaf(name)} is sampled again")

    async def _names_of(self, subscription_ids: Sequence[int]) -> Mapping[int, str]:
        async with self._database.transaction() as connection:
            return await store.read_names(connection, subscription_ids=subscription_ids)

    async def _forget_deleted(self, connection: ResourceConnection) -> None:
        """Forgets unreadable subscriptions that do not exist any more."""
        if self._unreadable:
            names = await store.read_names(connection, subscription_ids=list(self._unreadable))
            for id_ in self._unreadable.keys() - names.keys():
                self._states.forget(_UNREADABLE, self._unreadable.pop(id_))

    async def _sample(self, sample_pass: SamplePass, window: Window, subscription_ids: Sequence[int]) -> None:
        async with self._database.transaction() as connection:
            some = await read_subscriptions(connection, subscription_ids=subscription_ids)
        now = self._clock.now()
        samples = [
            LagSample.of(lag, dead_letters=window.dead_letters.get(lag.subscription.subscription_id, 0), now=now)
            for lag in await read_lags(self._database, self._reads, self._clock, some)
        ]
        async with self._database.transaction() as connection:
            confirmed_at = sample_pass.confirmed_at
            await store.write_samples(connection, samples, sampled_at=now, confirmed_at=confirmed_at)
