"""When messages are claimed, and for whom: wakes, turns, alarms and retries, for pulls and pushes alike.

    a publish, a nack, a new consumer ──► look ──► turn of the lane ──► claim for all that want ──► accept
                                           ▲                                  │
                     an alarm rings ───────┤◄── an alarm is set ◄── Quiet ────┤
                     somebody is ready ────┘◄── held up: wants nothing ◄ More ┘

Turns are shared by project, and in a project by shard, by the seconds that claims take; there what is urgent goes
first (fair_turns.py).  A claim serves all that a project wants from the shard, up to 1,000 subscriptions in one
transaction; one whose claims take long has turns of its own.  Consumers in doubt (push endpoints that fail, are
slow or are new) count as one project, so however many projects have such, whoever does well waits for one turn of
them.  What happens while a claim is under way is looked at after it, so no wake-up is lost.
"""

import asyncio
import random
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

from broker.domain.errors import Aborted, Unavailable
from broker.runtime.claim_lanes import Lane, Lanes, Member, State, Watch
from broker.runtime.claim_levels import look_at_ages
from broker.runtime.consumer import Answer, Consumer
from broker.runtime.core import Core
from broker.runtime.delivery_transforms import DeliveryTransforms
from broker.runtime.fair_turns import FairTurns
from broker.runtime.jitter import Jitter
from broker.runtime.retrying import retrying
from broker.runtime.turn_counts import ClaimCounts
from broker.store.claim.claim import claim_at_any_node
from broker.store.claim.request import MAX_TARGETS, ClaimRequest, ClaimTarget, Locked, More

_FAILED_SECONDS = 1.0  # after which, at most, a claim that failed is tried again
_SHORTEST_ALARM_SECONDS = 0.001
LONG_SECONDS = 0.05  # of a claim that leaves the last slot to others; a plain one takes a tenth of it


class ClaimScheduler:
    """Claims for its consumers, of which a subscription has one at most."""

    def __init__(self, core: Core, *, jitter: Jitter, turns_at_once: int, waits: bool) -> None:
        """`turns_at_once` claims, each on a connection.  `waits`: a claim for one waits for a cursor that somebody
        else holds; otherwise it is tried again in a moment.
        """
        self._counts = ClaimCounts(core.counters)
        self._database, self._clock, self._tasks = core.database, core.clock, core.tasks
        self._attempt_ids = core.attempt_ids
        self._jitter, self._loop_turns = jitter, core.loop_turns
        self._turns_at_once = turns_at_once
        self._waits = waits
        self._members: dict[int, Member] = {}  # by subscription
        self._lanes = Lanes()
        self._turns = FairTurns[Lane](turns_at_once, long=LONG_SECONDS, company=core.company)
        self._serving = 0  # tasks that serve turns
        self._transforming = 0  # claims whose messages are being transformed
        self.transforms: DeliveryTransforms | None = None  # set by whoever connects the two
        self._served = asyncio.Event()
        self._stopping = False

    # --- what there may be to do ---------------------------------------------------------------------------------

    def add(self, consumer: Consumer) -> None:
        """A consumer is new, or was changed, or wants more: look at everything."""
        subscription = consumer.subscription
        member = self._members.get(subscription.subscription_id)
        if member is None:
            member = self._members[subscription.subscription_id] = Member(consumer)
        if member.shard_ids != subscription.shard_ids:
            self._lanes.watch(member)
        if member.urgent != subscription.is_urgent:
            self._lanes.move(member)
        self._look_everywhere(member)

    def remove(self, consumer: Consumer) -> None:
        """Nothing is claimed for a consumer any more; it gets what is being claimed."""
        member = self._members.pop(consumer.subscription.subscription_id)
        member.removed = True
        self._lanes.forget(member)
        if member.alarm is not None:
            member.alarm.cancel()

    def wake(self, shard_id: int | None, subscription_id: int | None) -> None:
        """A shard was published to, or messages of a subscription are due; neither given: anything may be."""
        if subscription_id is not None:
            if subscription_id in self._members:
                self._look_everywhere(self._members[subscription_id])
        elif shard_id is not None:
            for lane in self._lanes.of_shard(shard_id):
                lane.woken = True
                self._queue(lane)
        else:
            for member in self._members.values():
                self._look_everywhere(member)

    def ready(self, subscription_id: int) -> None:
        """The consumer may want something that it did not want before."""
        member = self._members.get(subscription_id)
        if member is not None:
            self._look_at_held_up(member)
            self._wake_with(member)

    def watched_shards(self) -> Collection[int]:
        """The shards that there is a consumer for."""
        return self._lanes.shards

    async def stop(self) -> None:
        """Begin no claim any more, and wait for those under way."""
        self._stopping = True
        while self._serving or self._transforming:
            self._served.clear()
            await self._served.wait()

    def _look_everywhere(self, member: Member) -> None:
        now = self._clock.now()
        for watch in member.in_turn():
            watch.due_at = now  # a claim under way has looked at what was due before
            self._look(watch)

    def _look(self, watch: Watch) -> None:
        self._mark(watch)
        if watch.state is State.QUEUED:
            self._queue(watch.lane)

    def _mark(self, watch: Watch) -> None:
        """To be claimed for in its lane's next turn, or after the claim that is under way."""
        if watch.state is State.CLAIMING:
            watch.again = True
        elif watch.state is not State.QUEUED:
            watch.member.held_up.pop(watch, None)
            watch.state = State.QUEUED
            in_doubt = watch.member.consumer.in_doubt
            watch.go_with(self._lanes.doubtful(watch.shard_id) if in_doubt else watch.home)
            watch.lane.looks[watch] = None

    def _look_at_held_up(self, member: Member) -> None:
        if member.held_up and member.consumer.wants():
            for watch in member.next_held_up(self._clock.now()):
                self._look(watch)

    def _queue(self, lane: Lane) -> None:
        if lane.queued or self._stopping:
            return
        lane.queued, lane.queued_at = True, asyncio.get_running_loop().time()
        self._turns.ask(lane.path, lane)
        self._serve_more()

    def _serve_more(self) -> None:
        if len(self._turns) and self._serving < self._turns_at_once and not self._stopping:
            self._serving += 1
            self._tasks.start(self._serve_turns(), name="claims")

    # --- alarms --------------------------------------------------------------------------------------------------

    def _set_alarm(self, member: Member) -> None:
        """For what is due next, too: when a claim for it has ended, however it did."""
        if member.removed:
            return
        self._wake_with(member)
        now = self._clock.now()
        dues = [watch.due_at for watch in member.watches if watch.due_at is not None and watch.state is State.IDLE]
        dues += member.retries_at(now)
        if member.levels is not None and (old_at := member.next_old_at(now)):
            dues.append(old_at)
        if dues:
            seconds = (min(dues) - now).total_seconds()
            self._wake_at(member, asyncio.get_running_loop().time() + seconds)

    def _wake_with(self, member: Member) -> None:
        """When the consumer says."""
        at = member.consumer.wakes_at(held_up=bool(member.held_up))
        if at is not None:
            self._wake_at(member, at)

    def _wake_at(self, member: Member, at: float) -> None:
        """An alarm that rings too early does no harm, so one that is set already is only ever brought forward."""
        loop = asyncio.get_running_loop()
        at = max(at, loop.time() + _SHORTEST_ALARM_SECONDS)
        if member.alarm is not None:
            if member.alarm_at <= at:
                return
            member.alarm.cancel()
        member.alarm, member.alarm_at = loop.call_at(at, self._ring, member), at

    def _ring(self, member: Member) -> None:
        """Something is due, or the consumer may want something again."""
        member.alarm = None
        member.consumer.woken()
        now = self._clock.now()
        for watch in member.watches:
            if watch.state is State.IDLE and watch.is_due(now):
                self._look(watch)
        self._look_at_held_up(member)
        self._set_alarm(member)

    # --- turns ---------------------------------------------------------------------------------------------------

    async def _serve_turns(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while not self._stopping and (turn := self._turns.begin()) is not None:
                queued_at, begun_at = turn.item.queued_at, loop.time()
                try:
                    await self._serve(turn.item)
                finally:
                    self._turns.end(turn, self._counts.turn_ended(turn.item.path[0], queued_at, begun_at))
                self._serve_more()
        finally:
            self._serving -= 1
            self._served.set()

    async def _serve(self, lane: Lane) -> None:
        """One turn."""
        if lane.woken:
            lane.woken = False
            for watch in lane.watches.values():
                watch.retried_until = None
                self._look(watch)  # who is alone has another turn
        targets, giving_way = self._choose(lane)
        lane.queued = False
        if lane.looks:
            self._queue(lane)
        if giving_way:
            await self._add_old_ones(lane.shard_id, giving_way, targets)
        if targets:
            await self._claim(lane, targets)

    def _choose(self, lane: Lane) -> tuple[dict[Watch, ClaimTarget], list[Watch]]:
        """Who is claimed for in this turn; and who gives way, unless what waits there has waited too long."""
        chosen: dict[Watch, ClaimTarget] = {}
        giving_way: list[Watch] = []
        now = self._clock.now()
        while lane.looks and len(chosen) + len(giving_way) < MAX_TARGETS:
            watch = next(iter(lane.looks))
            del lane.looks[watch]
            gives_way = watch.gives_way(now)
            watch.state, watch.again = State.CLAIMING, False
            if not gives_way:
                self._begin(watch, chosen, now)
            elif (old_at := watch.old_at(now)) and old_at <= now:
                giving_way.append(watch)
            else:
                self._wait(watch)
        return chosen, giving_way

    def _begin(self, watch: Watch, chosen: dict[Watch, ClaimTarget], now: datetime) -> None:
        try:
            target = watch.member.consumer.begin(now, due=watch.is_due(now))
        except Exception as error:  # a fault of its own is nobody else's
            self._fail(watch, None, error)
            return
        if target is not None:
            chosen[watch] = watch.restrained(target, now)
        else:
            self._wait(watch)

    async def _add_old_ones(
        self, shard_id: int, giving_way: Sequence[Watch], chosen: dict[Watch, ClaimTarget]
    ) -> None:
        now = self._clock.now()
        members = [watch.member for watch in giving_way]
        asked = [(each.consumer.subscription, each.levels) for each in members if each.levels is not None]
        try:
            await look_at_ages(self._database, shard_id, asked, now)
        except Exception as error:
            for watch in giving_way:
                self._fail(watch, None, error)
            return
        for watch in giving_way:
            if watch.member.removed:
                watch.state = State.IDLE
            elif watch.gives_way(now):
                self._wait(watch)
                self._look_at_held_up(watch.member)  # what it gave way to may be done
            else:
                self._begin(watch, chosen, now)

    def _wait(self, watch: Watch) -> None:
        self._hold_up(watch)
        self._set_alarm(watch.member)

    def _hold_up(self, watch: Watch) -> None:
        watch.state = State.HELD_UP
        watch.member.held_up[watch] = None

    # --- claims --------------------------------------------------------------------------------------------------

    async def _claim(self, lane: Lane, targets: Mapping[Watch, ClaimTarget]) -> None:
        left = dict(targets)  # who has no answer yet
        try:
            await self._claim_for(lane, targets, left)
            for watch, target in tuple(left.items()):  # it failed, maybe because of one of them
                await self._claim_for(lane, {watch: target}, left)
        except BaseException:
            for watch, target in left.items():
                self._fail(watch, target, Unavailable("The broker stops."))
            raise

    async def _claim_for(
        self, lane: Lane, targets: Mapping[Watch, ClaimTarget], left: dict[Watch, ClaimTarget]
    ) -> None:
        """In one transaction.  Takes from `left` who is answered: nobody, if it is worth to try each alone."""
        now, begun_at = self._clock.now(), asyncio.get_running_loop().time()
        request = ClaimRequest(
            shard_id=lane.shard_id,
            targets=list(targets.values()),
            now=now,
            clock=self._clock.now,
            jitter=self._jitter(),
            skip_locked=not self._waits,
            turn=partial(self._loop_turns.turn, lane.path[0]),
        )
        try:
            claimed = await retrying(lambda: claim_at_any_node(self._database, request, self._attempt_ids), Aborted)
        except Exception as error:
            if len(targets) == 1 or isinstance(error, Unavailable):
                for watch in targets:
                    self._fail(watch, left.pop(watch), error)
            return
        self._counts.claimed(claimed.values())
        for watch, target in targets.items():
            del left[watch]
            answer = Answer(lane.shard_id, target, claimed[target.subscription_id], now, begun_at)
            subscription = watch.member.consumer.subscription
            if subscription.transforms and self.transforms is not None and any(answer.claimed.deliveries):
                self._transforming += 1
                self._tasks.start(self._transform(watch, answer, self.transforms), name="transforms of a claim")
            else:
                self._conclude(watch, answer)

    def _fail(self, watch: Watch, target: ClaimTarget | None, error: BaseException) -> None:
        """It may have been committed without our knowing: the next look learns when those messages fall due."""
        watch.go_alone(False)
        watch.due_at = self._clock.now() + timedelta(seconds=_FAILED_SECONDS * random.uniform(0.5, 1))  # noqa: S311
        watch.state = State.IDLE
        watch.member.held_up.pop(watch, None)  # if it was the answer that could not be taken
        watch.member.consumer.fail(target, error)
        self._set_alarm(watch.member)

    async def _transform(self, watch: Watch, answer: Answer, transforms: DeliveryTransforms) -> None:
        """First; it may take a while, in which others have their turns."""
        try:
            transformed = await transforms.transformed(watch.member.consumer.subscription, answer)
        except asyncio.CancelledError:
            self._fail(watch, answer.target, Unavailable("The broker stops."))
            raise
        except Exception as error:
            self._fail(watch, answer.target, error)
        else:
            self._conclude(watch, transformed)
        finally:
            self._transforming -= 1
            self._served.set()

    def _conclude(self, watch: Watch, answer: Answer) -> None:
        """A claim is over: tell the consumer, and know when to look next."""
        self._counts.ended(watch.member.consumer.subscription.name, answer.claimed)
        watch.go_alone(self._goes_alone(watch, answer))
        again = watch.note(answer, waits=self._waits) or watch.again
        watch.took(answer)
        watch.claimed_at = answer.begun_at
        watch.state = State.IDLE
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

    def _goes_alone(self, watch: Watch, answer: Answer) -> bool:
        """Whether the next claim for it would keep others waiting: for a cursor, or while a filter looks far."""
        rest = answer.claimed.rest
        if not isinstance(rest, More):
            return isinstance(rest, Locked) and self._waits
        took = asyncio.get_running_loop().time() - answer.begun_at
        may_be_long = watch.is_alone or answer.target.filter_path is not None
        return may_be_long and took >= LONG_SECONDS
