"""Reads backlogs and other gauges from the database for a scrape, and keeps them for a few seconds (F1)."""

import asyncio
from functools import partial
from itertools import islice
from time import monotonic

from broker.core.catalog import push_state_rows as push_states
from broker.core.catalog import subscription_rows as subscriptions
from broker.core.lag.lag import Lag
from broker.core.lag.lags import AT_A_TIME, read_lags
from broker.core.process.database_clock import DatabaseClock
from broker.db.driver.database import Database
from broker.db.driver.replica_reads import ReplicaReads
from broker.features.metrics.rows import (
    count_beyond,
    count_operations,
    count_outbox,
    count_scheduled,
    list_frozen,
    read_retained,
)
from broker.model.errors import BrokerError
from broker.model.push_state import PushState
from broker.model.subscription import Subscription
from broker.observability.metrics.book import CounterBook
from broker.observability.metrics.gauges import GaugeValues, SubscriptionGauges, UnderWay

KEPT_SECONDS = 5.0
_BREAKERS = {"closed": 0, "half_open": 1, "open": 2}


class Figures:
    """The gauges of the oldest topics and subscriptions, as many as have series of their own in the book."""

    def __init__(
        self, database: Database, replica_reads: ReplicaReads, clock: DatabaseClock, book: CounterBook
    ) -> None:
        self._database = database
        self._replica_reads = replica_reads
        self._clock = clock
        self._capacity = book.series
        self._kept = GaugeValues(complete=False)
        self._until = 0.0
        self._reading = asyncio.Lock()

    async def read(self) -> GaugeValues:
        """Returns the gauges, which are up to KEPT_SECONDS old; none if the database is not available."""
        async with self._reading:
            if monotonic() >= self._until:
                try:
                    self._kept = await self._read()
                except BrokerError:
                    self._kept = GaugeValues(complete=False)
                self._until = monotonic() + KEPT_SECONDS
            return self._kept

    async def _read(self) -> GaugeValues:
        capacity = self._capacity
        async with self._database.transaction() as connection:
            unread = await count_beyond(connection, most=capacity)
            frozen = await list_frozen(connection, limit=capacity)
            operations = await count_operations(connection)
            outbox, outbox_since = await count_outbox(connection)
            scheduled = await count_scheduled(connection)
        retained = await self._replica_reads.read(partial(read_retained, max_topics=capacity), late=True)
        now = self._clock.now()
        under_way = {
            project: UnderWay(count, max((now - updated_at).total_seconds(), 0.0))
            for project, (count, updated_at) in islice(operations.items(), capacity)
        }
        gauge_values = GaugeValues(
            retained=retained, frozen=frozen, operations=under_way, unread=unread, outbox=outbox
        )
        gauge_values.scheduled = scheduled
        gauge_values.replica_lag, gauge_values.replica_in_use = (
            self._replica_reads.lag_seconds,
            self._replica_reads.in_use,
        )
        if outbox_since is not None:
            gauge_values.outbox_age = max((now - outbox_since).total_seconds(), 0.0)
        after = 0
        while len(gauge_values.subscriptions) < capacity:
            async with self._database.transaction() as connection:
                some = await subscriptions.list_all_subscriptions(connection, after=after, limit=AT_A_TIME)
            if not some:
                break
            after = some[-1].subscription_id
            gauge_values.subscriptions.update(await self._stand([each for each in some if not each.detached]))
        return gauge_values

    async def _stand(self, some: list[Subscription]) -> dict[str, SubscriptionGauges]:
        pushed = [each.subscription_id for each in some if each.is_push]
        async with self._database.transaction() as connection:
            states = await push_states.read_push_states(connection, subscription_ids=pushed) if pushed else {}
        return {
            lag.subscription.name: self._gauges_of(lag, states.get(lag.subscription.subscription_id))
            for lag in await read_lags(self._database, self._replica_reads, self._clock, some, late=True)
        }

    def _gauges_of(self, lag: Lag, state: PushState | None) -> SubscriptionGauges:
        age = 0.0 if lag.oldest is None else max((self._clock.now() - lag.oldest).total_seconds(), 0.0)
        is_push = lag.subscription.is_push
        failures = None if state is None else state.failures
        messages = 0 if state is None else len(state.failing_messages)
        return SubscriptionGauges(
            undelivered=lag.undelivered,
            is_estimated=lag.is_estimated,
            backlog_bytes=lag.undelivered_bytes,
            outstanding=lag.outstanding,
            oldest_age=age,
            breaker=_BREAKERS[state.breaker if state else "closed"] if is_push else None,
            paused=lag.subscription.pause is not None,
            failing=(failures is not None and failures.is_reported) if is_push else None,
            failing_messages=messages if is_push else None,
        )
