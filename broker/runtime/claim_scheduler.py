"""When messages are claimed, and for whom: wakes, turns, alarms and retries, for pulls and pushes alike.

    a publish, a nack, a new consumer ──► look ──► turn of the shard ──► claim for all that want ──► accept
                                           ▲                                  │
                     an alarm rings ───────┤◄── an alarm is set ◄── Quiet ────┤
                     somebody is ready ────┘◄── held up: wants nothing ◄ More ┘

Shards take turns, a claim at a time, so that a giant topic does not hold up the others; a claim serves all that
want something from the shard, up to 1,000 in one transaction.  What happens while a claim is under way is looked at
after it, so no wake-up is lost.
"""

import asyncio
import random
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, auto

from broker.domain.errors import Aborted, Unavailable
from broker.runtime.consumer import Answer, Consumer
from broker.runtime.database_clock import DatabaseClock
from broker.runtime.jitter import Jitter
from broker.runtime.retrying import retrying
from broker.runtime.tasks import Tasks
from broker.store.claim.claim import claim_messages
from broker.store.claim.request import MAX_CLAIMANTS, Claimant, Claimed, ClaimRequest, Gone, Locked, More, Quiet
from broker.store.driver.database import Database
from broker.store.log.attempt_ids import AttemptIds

_LOCKED = timedelta(milliseconds=20)  # after which a cursor that somebody else held is tried again
_FAILED_SECONDS = 1.0  # after which, at most, a claim that failed is tried again
_SHORTEST_ALARM_SECONDS = 0.001


class _State(Enum):
    """Of a consumer in a shard."""

    IDLE = auto()  # nothing is known of, before `due_at`
    QUEUED = auto()  # to be claimed for in the shard's next turn
    CLAIMING = auto()
    HELD_UP = auto()  # there may be something, and the consumer did not want it


@dataclass(eq=False, slots=True)
class _Watch:
    """A consumer in one of its shards.

    `again`: something came while it was claimed for.  `alone`: the next claim for it is for nobody else, and waits.
    `due_at`: when to look for redeliveries; None: nothing is known of.
    """

    member: "_Member"
    shard: "_Shard"
    state: _State = _State.IDLE
    again: bool = False
    alone: bool = False
    due_at: datetime | None = None

    def look_at(self, time: datetime | None) -> None:
        """For redeliveries then, or before."""
        if time is not None and (self.due_at is None or time < self.due_at):
            self.due_at = time

    def is_due(self, now: datetime) -> bool:
        return self.due_at is not None and self.due_at <= now


@dataclass(eq=False, slots=True)
class _Shard:
    """`looks`: whom to claim for next; `woken`: all of them."""

    shard_id: int
    watches: dict[int, _Watch] = field(default_factory=dict)  # by subscription
    looks: dict[_Watch, None] = field(default_factory=dict)
    woken: bool = False
    queued: bool = False


@dataclass(eq=False, slots=True)
class _Member:
    """A consumer, in all its shards.  `held_up`: the longest waiting first."""

    consumer: Consumer
    watches: list[_Watch] = field(default_factory=list)
    held_up: dict[_Watch, None] = field(default_factory=dict)
    alarm: asyncio.TimerHandle | None = None
    alarm_at: float = 0.0  # not asked of the handle: uvloop's has no time if that is less than a millisecond away
    removed: bool = False


class ClaimScheduler:
    """Claims for its consumers, of which a subscription has one at most."""

    def __init__(
        self,
        database: Database,
        clock: DatabaseClock,
        attempt_ids: AttemptIds,
        tasks: Tasks,
        *,
        jitter: Jitter,
        turns_at_once: int,
        waits: bool,
    ) -> None:
        """`turns_at_once` claims, each on a connection.  `waits`: a claim for one waits for a cursor that somebody
        else holds; otherwise it is tried again in a moment.
        """
        self._database = database
        self._clock = clock
        self._attempt_ids = attempt_ids
        self._tasks = tasks
        self._jitter = jitter
        self._turns_at_once = turns_at_once
        self._waits = waits
        self._members: dict[int, _Member] = {}  # by subscription
        self._shards: dict[int, _Shard] = {}
        self._turns: deque[_Shard] = deque()
        self._serving = 0  # tasks that serve turns
        self._served = asyncio.Event()
        self._stopping = False

    # --- what there may be to do ---------------------------------------------------------------------------------

    def add(self, consumer: Consumer) -> None:
        """A consumer is new, or was changed, or wants more: look at everything."""
        subscription = consumer.subscription
        member = self._members.get(subscription.subscription_id)
        if member is None:
            member = self._members[subscription.subscription_id] = _Member(consumer)
            for shard_id in subscription.shard_ids:
                shard = self._shards.setdefault(shard_id, _Shard(shard_id))
                watch = shard.watches[subscription.subscription_id] = _Watch(member, shard)
                member.watches.append(watch)
        self._look_everywhere(member)

    def remove(self, consumer: Consumer) -> None:
        """Nothing is claimed for a consumer any more; it gets what is being claimed."""
        subscription_id = consumer.subscription.subscription_id
        member = self._members.pop(subscription_id)
        member.removed = True
        for watch in member.watches:
            shard = watch.shard
            shard.looks.pop(watch, None)
            del shard.watches[subscription_id]
            if not shard.watches:
                del self._shards[shard.shard_id]
        if member.alarm is not None:
            member.alarm.cancel()

    def wake(self, shard_id: int | None, subscription_id: int | None) -> None:
        """A shard was published to, or messages of a subscription are due; neither given: anything may be."""
        if subscription_id is not None:
            if subscription_id in self._members:
                self._look_everywhere(self._members[subscription_id])
        elif shard_id is not None:
            if shard_id in self._shards:
                self._shards[shard_id].woken = True
                self._queue(self._shards[shard_id])
        else:
            for member in self._members.values():
                self._look_everywhere(member)

    def ready(self, subscription_id: int) -> None:
        """The consumer may want something that it did not want before."""
        member = self._members.get(subscription_id)
        if member is not None:
            self._look_at_held_up(member)
            self._set_alarm(member)

    def watched_shards(self) -> Collection[int]:
        """The shards that there is a consumer for."""
        return self._shards.keys()

    async def stop(self) -> None:
        """Begin no claim any more, and wait for those under way."""
        self._stopping = True
        self._turns.clear()
        while self._serving:
            self._served.clear()
            await self._served.wait()

    def _look_everywhere(self, member: _Member) -> None:
        now = self._clock.now()
        for watch in member.watches:
            watch.due_at = now  # a claim under way has looked at what was due before
            self._look(watch)

    def _look(self, watch: _Watch) -> None:
        self._mark(watch)
        if watch.state is _State.QUEUED:
            self._queue(watch.shard)

    def _mark(self, watch: _Watch) -> None:
        """To be claimed for in its shard's next turn, or after the claim that is under way."""
        if watch.state is _State.CLAIMING:
            watch.again = True
        elif watch.state is not _State.QUEUED:
            watch.member.held_up.pop(watch, None)
            watch.state = _State.QUEUED
            watch.shard.looks[watch] = None

    def _look_at_held_up(self, member: _Member) -> None:
        if member.held_up and member.consumer.wants():
            for watch in tuple(member.held_up):
                self._look(watch)

    def _queue(self, shard: _Shard) -> None:
        if shard.queued or self._stopping:
            return
        shard.queued = True
        self._turns.append(shard)
        if self._serving < self._turns_at_once:
            self._serving += 1
            self._tasks.start(self._serve_turns(), name="claims")

    # --- alarms --------------------------------------------------------------------------------------------------

    def _set_alarm(self, member: _Member) -> None:
        """An alarm that rings too early does no harm, so one that is set already is only ever brought forward."""
        if member.removed:
            return
        loop = asyncio.get_running_loop()
        at = member.consumer.wakes_at(held_up=bool(member.held_up))
        for watch in member.watches:
            if watch.due_at is not None and watch.state is _State.IDLE:
                due_at = loop.time() + (watch.due_at - self._clock.now()).total_seconds()
                at = due_at if at is None else min(at, due_at)
        if at is None:
            return
        at = max(at, loop.time() + _SHORTEST_ALARM_SECONDS)
        if member.alarm is not None:
            if member.alarm_at <= at:
                return
            member.alarm.cancel()
        member.alarm, member.alarm_at = loop.call_at(at, self._ring, member), at

    def _ring(self, member: _Member) -> None:
        """Something is due, or the consumer may want something again."""
        member.alarm = None
        member.consumer.woken()
        now = self._clock.now()
        for watch in member.watches:
            if watch.state is _State.IDLE and watch.is_due(now):
                self._look(watch)
        self._look_at_held_up(member)
        self._set_alarm(member)

    # --- turns ---------------------------------------------------------------------------------------------------

    async def _serve_turns(self) -> None:
        try:
            while self._turns:
                shard = self._turns.popleft()
                shard.queued = False
                await self._serve(shard)
        finally:
            self._serving -= 1
            self._served.set()

    async def _serve(self, shard: _Shard) -> None:
        """One turn."""
        if shard.woken:
            shard.woken = False
            for watch in shard.watches.values():
                self._mark(watch)
        chosen = self._choose(shard)
        if shard.looks:
            self._queue(shard)
        now = self._clock.now()
        claimants: dict[_Watch, Claimant] = {}
        for watch in chosen:
            try:
                claimants[watch] = watch.member.consumer.begin(now, due=watch.is_due(now))
            except Exception as error:  # a fault of its own is nobody else's
                self._fail(watch, None, error)
        if claimants:
            await self._claim(shard, claimants)

    def _choose(self, shard: _Shard) -> list[_Watch]:
        """Who is claimed for in this turn."""
        chosen: list[_Watch] = []
        while shard.looks and len(chosen) < MAX_CLAIMANTS:
            watch = next(iter(shard.looks))
            if watch.alone and chosen:
                break
            del shard.looks[watch]
            if watch.member.consumer.wants():
                watch.state, watch.again = _State.CLAIMING, False
                chosen.append(watch)
                if watch.alone:
                    break
            else:
                self._hold_up(watch)
                self._set_alarm(watch.member)
        return chosen

    def _hold_up(self, watch: _Watch) -> None:
        watch.state = _State.HELD_UP
        watch.member.held_up[watch] = None

    # --- claims --------------------------------------------------------------------------------------------------

    async def _claim(self, shard: _Shard, claimants: Mapping[_Watch, Claimant]) -> None:
        left = dict(claimants)  # who has no answer yet
        try:
            await self._claim_for(shard, claimants, left)
            for watch, claimant in tuple(left.items()):  # it failed, maybe because of one of them
                await self._claim_for(shard, {watch: claimant}, left)
        except BaseException:
            for watch, claimant in left.items():
                self._fail(watch, claimant, Unavailable("The broker stops."))
            raise

    async def _claim_for(
        self, shard: _Shard, claimants: Mapping[_Watch, Claimant], left: dict[_Watch, Claimant]
    ) -> None:
        """In one transaction.  Takes from `left` who is answered: nobody, if it is worth to try each alone."""
        now, begun_at = self._clock.now(), asyncio.get_running_loop().time()
        request = ClaimRequest(
            shard_id=shard.shard_id,
            claimants=list(claimants.values()),
            now=now,
            clock=self._clock.now,
            jitter=self._jitter(),
            skip_locked=not self._waits,
        )
        try:
            claimed = await retrying(lambda: self._run(request), Aborted)
        except Exception as error:
            if len(claimants) == 1 or isinstance(error, Unavailable):
                for watch in claimants:
                    self._fail(watch, left.pop(watch), error)
            return
        for watch, claimant in claimants.items():
            del left[watch]
            answer = Answer(shard.shard_id, claimant, claimed[claimant.subscription_id], now, begun_at)
            self._conclude(watch, answer)

    async def _run(self, request: ClaimRequest) -> Mapping[int, Claimed]:
        async with self._database.hot() as connection:
            return await claim_messages(connection, request, self._attempt_ids)

    def _fail(self, watch: _Watch, claimant: Claimant | None, error: BaseException) -> None:
        """It may have been committed without our knowing: the next look learns when those messages fall due."""
        watch.alone = False
        watch.due_at = self._clock.now() + timedelta(seconds=_FAILED_SECONDS * random.uniform(0.5, 1))  # noqa: S311
        watch.state = _State.IDLE
        watch.member.held_up.pop(watch, None)  # if it was the answer that could not be taken
        watch.member.consumer.fail(claimant, error)
        self._set_alarm(watch.member)

    def _conclude(self, watch: _Watch, answer: Answer) -> None:
        """A claim is over: tell the consumer, and know when to look next."""
        watch.alone = False
        again = self._note(watch, answer) or watch.again
        watch.state = _State.IDLE
        if again:
            self._hold_up(watch)  # until the consumer has been asked
        try:
            watch.member.consumer.accept(answer)
        except Exception as error:
            self._fail(watch, None, error)
            return
        if not watch.member.removed:
            self._look_at_held_up(watch.member)
            self._set_alarm(watch.member)

    def _note(self, watch: _Watch, answer: Answer) -> bool:
        """When to look for redeliveries next; returns whether there may be something now."""
        claimant, now = answer.claimant, answer.now
        if isinstance(answer.claimed.rest, Gone):  # which will be heard of
            watch.due_at = None
            return False
        if isinstance(answer.claimed.rest, Locked):
            watch.alone = self._waits
            if not self._waits:
                watch.due_at = now + _LOCKED
            return self._waits
        if claimant.looks_for_due and watch.is_due(now):
            watch.due_at = None
        served = [bool(deliveries) for deliveries in answer.claimed.deliveries]
        if any(served):
            # Should they not be settled they fall due then, which is not in the answer.
            watch.look_at(now + claimant.ack_deadline)
        if isinstance(answer.claimed.rest, More):
            watch.look_at(now if claimant.looks_for_due else None)
            return True
        assert isinstance(answer.claimed.rest, Quiet)
        watch.look_at(answer.claimed.rest.until)
        return all(served) and not claimant.wants_next  # then the claim has not asked what is next
