"""Which push subscriptions get messages now: the first of push's two stages (A8, B2, B5).

A publish wakes a shard; the planner then claims for its subscriptions that have room, up to 1,000 in one
transaction, and the sender does the rest.  Shards take turns, a claim at a time, so that one giant topic does not
hold up the others.  A subscription without room is noted and looked at again when a request has ended; redeliveries
have times of their own.
"""

import asyncio
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from broker.domain.attempt_ids import AttemptIds
from broker.domain.delivery import MAX_MESSAGES_PER_ATTEMPT, Delivery, Demand
from broker.domain.errors import Aborted
from broker.runtime.database_clock import DatabaseClock
from broker.runtime.jitter import Jitter
from broker.runtime.retrying import retrying
from broker.store.claim.claim import claim_messages
from broker.store.claim.request import MAX_CLAIMANTS, Claimant, Claimed, ClaimRequest, Gone, Locked, More, Quiet
from broker.store.claim.share import MAX_BYTES
from broker.store.driver.database import Database
from broker.workers.push.endpoint import MAX_BYTES_HELD, Endpoint
from broker.workers.push.sender import LEASE_MARGIN_SECONDS, MAX_BUFFERED_SECONDS, PushSender

_LOCKED = timedelta(milliseconds=20)  # after which a cursor that somebody else held is tried again
_SHORTEST_ALARM_SECONDS = 0.001


@dataclass(eq=False, slots=True)
class _Shard:
    """`looks`: the endpoints to claim for next; `woken`: all of them."""

    shard_id: int
    endpoints: dict[int, Endpoint] = field(default_factory=dict)
    looks: dict[int, Endpoint] = field(default_factory=dict)
    woken: bool = False
    queued: bool = False


class PushPlanner:
    """`run` is a supervised worker; several may run side by side."""

    def __init__(
        self,
        database: Database,
        clock: DatabaseClock,
        attempt_ids: AttemptIds,
        *,
        jitter: Jitter,
    ) -> None:
        self._database = database
        self._clock = clock
        self._attempt_ids = attempt_ids
        self._jitter = jitter
        self._shards: dict[int, _Shard] = {}
        self._turns: deque[_Shard] = deque()
        self._turn = asyncio.Event()
        self._serving = 0  # turns under way
        self._served = asyncio.Event()
        self._stopping = False
        self.sender: PushSender  # set by whoever connects the two

    # --- what there may be to do ---------------------------------------------------------------------------------

    def add(self, endpoint: Endpoint) -> None:
        """An endpoint is new, or was changed: look at everything."""
        for shard_id in endpoint.subscription.shard_ids:
            shard = self._shards.setdefault(shard_id, _Shard(shard_id))
            shard.endpoints[endpoint.subscription_id] = endpoint
            endpoint.due_at[shard_id] = self._clock.now()
            self._look(shard, endpoint)
        self.sender.pump(endpoint)  # what waited while it was being read

    def remove(self, endpoint: Endpoint) -> None:
        """Nothing is claimed for an endpoint any more; what was not sent is given back."""
        for shard_id in endpoint.subscription.shard_ids:
            shard = self._shards[shard_id]
            shard.endpoints.pop(endpoint.subscription_id, None)
            shard.looks.pop(endpoint.subscription_id, None)
            if not shard.endpoints:
                del self._shards[shard_id]
        if endpoint.alarm is not None:
            endpoint.alarm.cancel()
        self.sender.give_back(endpoint)

    def wake(self, shard_id: int | None, endpoint: Endpoint | None) -> None:
        """A shard was published to, or messages of an endpoint are due; neither given: anything may be."""
        if endpoint is not None:
            for id_ in endpoint.subscription.shard_ids:
                endpoint.due_at[id_] = self._clock.now()
                self._look(self._shards[id_], endpoint)
        elif shard_id is not None:
            if shard_id in self._shards:
                self._wake_all(self._shards[shard_id])
        else:
            for shard in self._shards.values():
                for each in shard.endpoints.values():
                    each.due_at[shard.shard_id] = self._clock.now()
                self._wake_all(shard)

    def settled(self, endpoint: Endpoint) -> None:
        """A request has ended: there may be room for what there was none for."""
        if not (endpoint.unserved or endpoint.buffer):
            return
        now = asyncio.get_running_loop().time()
        self._look_unserved(endpoint, now)
        # Else another one will end, and there is room for what waits; one that hangs must not be waited for.
        if not endpoint.flights or not endpoint.health.room(now):
            self._set_alarm(endpoint, now)

    def watched_shards(self) -> Collection[int]:
        """The shards that there is an endpoint for."""
        return self._shards.keys()

    async def stop_claiming(self) -> None:
        """Begin no claim any more, and wait for those under way: what they hand out can be given back."""
        self._stopping = True
        self._turns.clear()
        while self._serving:
            self._served.clear()
            await self._served.wait()

    def stop(self) -> None:
        """Give back what was not sent."""
        self._stopping = True
        for shard in self._shards.values():
            for endpoint in shard.endpoints.values():
                endpoint.closed = True
                self.sender.give_back(endpoint)

    def _wake_all(self, shard: _Shard) -> None:
        shard.woken = True
        self._queue(shard)

    def _look(self, shard: _Shard, endpoint: Endpoint) -> None:
        shard.looks[endpoint.subscription_id] = endpoint
        endpoint.looking.add(shard.shard_id)
        self._queue(shard)

    def _look_unserved(self, endpoint: Endpoint, now: float) -> None:
        """If there is room now, look where something may be that there was none for: the longest waiting first."""
        if not endpoint.unserved or not endpoint.wants(now):
            return
        for shard_id in [id_ for id_ in endpoint.unserved if id_ not in endpoint.claiming]:
            del endpoint.unserved[shard_id]
            self._look(self._shards[shard_id], endpoint)

    def _queue(self, shard: _Shard) -> None:
        if not shard.queued and not self._stopping:
            shard.queued = True
            self._turns.append(shard)
            self._turn.set()

    # --- alarms --------------------------------------------------------------------------------------------------

    def _set_alarm(self, endpoint: Endpoint, now: float) -> None:
        """An alarm that rings too early does no harm, so one that is set already is only ever brought forward.

        `now` is the time at which the endpoint was found to want nothing: at a later one there may be room, for
        which no alarm is set, and nobody would look.
        """
        if endpoint.closed:
            return
        loop = asyncio.get_running_loop()
        delay = endpoint.next_alarm(now, self._clock.now())
        if delay is None:
            return
        at = now + max(delay, _SHORTEST_ALARM_SECONDS)
        if endpoint.alarm is not None:
            if endpoint.alarm_at <= at:
                return
            endpoint.alarm.cancel()
        endpoint.alarm, endpoint.alarm_at = loop.call_at(at, self._ring, endpoint), at

    def _ring(self, endpoint: Endpoint) -> None:
        """Something is due, or the endpoint may be tried again."""
        endpoint.alarm = None
        self.sender.pump(endpoint)
        clock_now = self._clock.now()
        for shard_id, due in endpoint.due_at.items():
            if due <= clock_now:
                self._look(self._shards[shard_id], endpoint)
        now = asyncio.get_running_loop().time()
        self._look_unserved(endpoint, now)
        self._set_alarm(endpoint, now)

    # --- claiming ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Claim for whoever has work and room, for ever."""
        while True:
            while not self._turns:
                self._turn.clear()
                await self._turn.wait()
            shard = self._turns.popleft()
            shard.queued = False
            self._serving += 1
            try:
                await self._serve(shard)
            finally:
                self._serving -= 1
                self._served.set()

    async def _serve(self, shard: _Shard) -> None:
        """One turn of a shard."""
        if shard.woken:
            shard.woken = False
            shard.looks |= shard.endpoints
        chosen = self._choose(shard)
        for endpoint, count in chosen.items():
            endpoint.claiming.add(shard.shard_id)
            endpoint.asked += count
        if shard.looks:
            self._queue(shard)
        try:
            if chosen:
                await self._claim(shard, chosen)
                for endpoint in tuple(chosen):
                    self._claimed(shard, endpoint, chosen.pop(endpoint))
        finally:
            for endpoint, count in chosen.items():  # a fault: the supervisor starts this worker again
                endpoint.unserved[shard.shard_id] = None
                # It may have been committed without our knowing: then learn when those messages fall due.
                endpoint.due_at[shard.shard_id] = self._clock.now()
                self._claimed(shard, endpoint, count)

    def _choose(self, shard: _Shard) -> dict[Endpoint, int]:
        """Who is claimed for in this turn, and for how many parcels."""
        now = asyncio.get_running_loop().time()
        chosen: dict[Endpoint, int] = {}
        while shard.looks and len(chosen) < MAX_CLAIMANTS:
            subscription_id = next(iter(shard.looks))
            endpoint = shard.looks.pop(subscription_id)
            endpoint.looking.discard(shard.shard_id)
            if shard.shard_id in endpoint.claiming:
                endpoint.unserved[shard.shard_id] = None  # looked at again after that
            elif count := endpoint.wants(now):
                chosen[endpoint] = count
            elif not endpoint.closed and shard.shard_id not in endpoint.unserved:
                endpoint.unserved[shard.shard_id] = None
                self._set_alarm(endpoint, now)
        return chosen

    async def _claim(self, shard: _Shard, wanted: dict[Endpoint, int]) -> None:
        now, begun_at = self._clock.now(), asyncio.get_running_loop().time()
        request = ClaimRequest(
            shard_id=shard.shard_id,
            claimants=[self._claimant(shard, endpoint, count, now) for endpoint, count in wanted.items()],
            now=now,
            clock=self._clock.now,
            jitter=self._jitter(),
            skip_locked=True,
        )

        async def claim() -> dict[int, Claimed]:
            async with self._database.hot() as connection:
                return dict(await claim_messages(connection, request, self._attempt_ids))

        claimed = await retrying(claim, Aborted)
        for endpoint, claimant in zip(wanted, request.claimants, strict=True):
            of_endpoint = claimed[endpoint.subscription_id]
            looked = claimant.looks_for_due
            match of_endpoint.rest:
                case Gone():  # it was deleted, which will be heard of
                    endpoint.due_at.pop(shard.shard_id, None)
                    continue
                case Locked():
                    endpoint.due_at[shard.shard_id] = now + _LOCKED
                    continue
                case More():
                    endpoint.unserved[shard.shard_id] = None
                    self._note(shard, endpoint, looked, now if looked else None, now)  # it may be due
                case Quiet(until):
                    self._note(shard, endpoint, looked, until, now)
            self._accept(shard, endpoint, of_endpoint.deliveries[0], now, begun_at)

    def _claimant(self, shard: _Shard, endpoint: Endpoint, count: int, now: datetime) -> Claimant:
        subscription = endpoint.subscription
        digest = subscription.extensions.push.digest
        most = count if digest is None else digest.max_messages
        max_bytes = MAX_BYTES_HELD if digest is None else digest.max_bytes
        demand = Demand(max_messages=min(most, MAX_MESSAGES_PER_ATTEMPT), max_bytes=min(max_bytes, MAX_BYTES))
        return Claimant(
            subscription_id=subscription.subscription_id,
            demands=(demand,),
            ack_deadline=_lease(endpoint),
            retained_since=now - subscription.retention,
            retry_policy=subscription.retry_policy,
            filter_path=subscription.filter_path,
            max_attempts=subscription.max_delivery_attempts,
            ordered=subscription.enable_message_ordering,
            max_run=1,  # one request of a key is out at a time
            digest=digest,
            looks_for_due=_is_due(endpoint, shard, now),
            wants_next=True,
        )

    def _note(
        self, shard: _Shard, endpoint: Endpoint, looked: bool, next_look_at: datetime | None, now: datetime
    ) -> None:
        """When to look for redeliveries next."""
        if looked and _is_due(endpoint, shard, now):
            del endpoint.due_at[shard.shard_id]
        _look_at(endpoint, shard, next_look_at)

    def _accept(
        self, shard: _Shard, endpoint: Endpoint, deliveries: Sequence[Delivery], now: datetime, begun_at: float
    ) -> None:
        if deliveries:
            # Should the outcome not be written, the messages fall due by themselves then.
            _look_at(endpoint, shard, now + _lease(endpoint))
            # Their lease began no sooner than the claim; one that took long leaves them a little time all the same.
            latest = asyncio.get_running_loop().time() - MAX_BUFFERED_SECONDS / 2
            leased_until = begun_at + _lease(endpoint).total_seconds()
            endpoint.accept(deliveries, max(begun_at, latest), leased_until=leased_until)
        self.sender.pump(endpoint)

    def _claimed(self, shard: _Shard, endpoint: Endpoint, count: int) -> None:
        """A claim for so many parcels is over."""
        endpoint.claiming.discard(shard.shard_id)
        endpoint.asked -= count
        now = asyncio.get_running_loop().time()
        self._look_unserved(endpoint, now)
        self._set_alarm(endpoint, now)


def _lease(endpoint: Endpoint) -> timedelta:
    return timedelta(seconds=endpoint.subscription.ack_deadline_seconds + LEASE_MARGIN_SECONDS)


def _is_due(endpoint: Endpoint, shard: _Shard, now: datetime) -> bool:
    due_at = endpoint.due_at.get(shard.shard_id)
    return due_at is not None and due_at <= now


def _look_at(endpoint: Endpoint, shard: _Shard, time: datetime | None) -> None:
    if time is not None:
        known = endpoint.due_at.get(shard.shard_id)
        endpoint.due_at[shard.shard_id] = time if known is None else min(known, time)
