"""Decides when to claim, and for which subscriptions: wake-ups, turns, alarms and retries of pulls and pushes.

    a publish, a nack, a new consumer ──► queued ──► turn of the group ──► claim for all that want ──► accept
                                             ▲                                  │
                       an alarm rings ───────┤◄── an alarm is set ◄── Quiet ────┤
                  a consumer is ready ───────┘◄── held up: wants nothing ◄ More ┘

Turns are shared by project, and in a project by shard, by the seconds that claims take; urgent subscriptions of a
project go first (fair_turns.py).  A claim serves all that a project wants from the shard, up to 1,000 subscriptions
in one transaction; a subscription whose claims take long has turns of its own.  Consumers in doubt (push endpoints
that fail, are slow or are new) count as one project, so however many projects have such, the others wait for one
turn of them.  A wake-up while a claim is under way is handled after it, so none is lost.
"""

import asyncio
import random
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

from broker.domain.errors import Aborted, Unavailable
from broker.runtime.claim_groups import ClaimGroup, ClaimGroups, ScheduledConsumer, ShardSubscription, State
from broker.runtime.claim_levels import read_ages
from broker.runtime.consumer import Answer, Consumer
from broker.runtime.core import Core
from broker.runtime.delivery_transforms import DeliveryTransforms
from broker.runtime.fair_turns import FairTurns, TurnFor
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
        """`turns_at_once` claims, each on a connection.  `waits`: a claim for one waits for a cursor that another
        transaction has locked; otherwise it is tried again in a moment.
        """
        self._counts = ClaimCounts(core.counters)
        self._database, self._clock, self._tasks = core.database, core.clock, core.tasks
        self._attempt_ids = core.attempt_ids
        self._jitter, self._loop_turns = jitter, core.loop_turns
        self._turns_at_once = turns_at_once
        self._waits = waits
        self._scheduled: dict[int, ScheduledConsumer] = {}  # by subscription
        self._groups = ClaimGroups()
        self._turns = FairTurns[TurnFor[ClaimGroup]](turns_at_once, long=LONG_SECONDS, tenants=core.tenants)
        self._serving = 0  # tasks that serve turns
        self._transforming = 0  # claims whose messages are being transformed
        self.transforms: DeliveryTransforms | None = None  # set when both have been built
        self._served = asyncio.Event()
        self._stopping = False

    # --- wake-ups -------------------------------------------------------------------------------------------------

    def add(self, consumer: Consumer) -> None:
        """Claim from all shards for a consumer that is new, was changed, or wants more."""
        subscription = consumer.subscription
        scheduled = self._scheduled.get(subscription.subscription_id)
        if scheduled is None:
            scheduled = self._scheduled[subscription.subscription_id] = ScheduledConsumer(consumer)
        if scheduled.shard_ids != subscription.shard_ids:
            self._groups.add(scheduled)
        if scheduled.urgent != subscription.is_urgent:
            self._groups.move(scheduled)
        self._schedule_all(scheduled)

    def remove(self, consumer: Consumer) -> None:
        """Claim nothing for a consumer any more; it gets the messages that are being claimed."""
        scheduled = self._scheduled.pop(consumer.subscription.subscription_id)
        scheduled.removed = True
        self._groups.remove(scheduled)
        if scheduled.alarm is not None:
            scheduled.alarm.cancel()

    def wake(self, shard_id: int | None, subscription_id: int | None) -> None:
        """Claim: a shard was published to, or messages of a subscription are due; neither given: either may be."""
        if subscription_id is not None:
            if subscription_id in self._scheduled:
                self._schedule_all(self._scheduled[subscription_id])
        elif shard_id is not None:
            for group in self._groups.of_shard(shard_id):
                group.woken = True
                self._queue(group)
        else:
            for scheduled in self._scheduled.values():
                self._schedule_all(scheduled)

    def ready(self, subscription_id: int) -> None:
        """Claim for a consumer that may want messages that it did not want before."""
        scheduled = self._scheduled.get(subscription_id)
        if scheduled is not None:
            self._schedule_held_up(scheduled)
            self._wake_with(scheduled)

    def watched_shards(self) -> Collection[int]:
        """The shards that there is a consumer for."""
        return self._groups.shards

    async def stop(self) -> None:
        """Begin no more claims, and wait for those under way."""
        self._stopping = True
        while self._serving or self._transforming:
            self._served.clear()
            await self._served.wait()

    def _schedule_all(self, scheduled: ScheduledConsumer) -> None:
        now = self._clock.now()
        for shard in scheduled.in_turn():
            shard.due_at = now  # a claim under way has only found what was due before
            self._schedule(shard)

    def _schedule(self, shard: ShardSubscription) -> None:
        """Claim for it in its group's next turn, or after the claim that is under way."""
        if shard.state is State.CLAIMING:
            shard.again = True
            return
        if shard.state is not State.QUEUED:
            shard.scheduled.held_up.pop(shard, None)
            shard.state = State.QUEUED
            in_doubt = shard.scheduled.consumer.in_doubt
            shard.join(self._groups.doubtful(shard.shard_id) if in_doubt else shard.own_group)
            shard.group.pending[shard] = None
        self._queue(shard.group)

    def _schedule_held_up(self, scheduled: ScheduledConsumer) -> None:
        if scheduled.held_up and scheduled.consumer.wants():
            for shard in scheduled.next_held_up(self._clock.now()):
                self._schedule(shard)

    def _queue(self, group: ClaimGroup) -> None:
        if group.queued or self._stopping:
            return
        group.queued, group.queued_at = True, asyncio.get_running_loop().time()
        self._turns.ask(TurnFor(group.path, item=group))
        self._serve_more()

    def _serve_more(self) -> None:
        if len(self._turns) and self._serving < self._turns_at_once and not self._stopping:
            self._serving += 1
            self._tasks.start(self._serve_turns(), name="claims")

    # --- alarms --------------------------------------------------------------------------------------------------

    def _set_alarm(self, scheduled: ScheduledConsumer) -> None:
        """Wake the consumer when it asks for it, or when there may be messages for it again."""
        if scheduled.removed:
            return
        self._wake_with(scheduled)
        now = self._clock.now()
        due_at = scheduled.next_due_at(now)
        if due_at is not None:
            self._wake_at(scheduled, asyncio.get_running_loop().time() + (due_at - now).total_seconds())

    def _wake_with(self, scheduled: ScheduledConsumer) -> None:
        at = scheduled.consumer.wakes_at(held_up=bool(scheduled.held_up))
        if at is not None:
            self._wake_at(scheduled, at)

    def _wake_at(self, scheduled: ScheduledConsumer, at: float) -> None:
        """Set the alarm, or bring it forward: one that rings too early does no harm."""
        loop = asyncio.get_running_loop()
        at = max(at, loop.time() + _SHORTEST_ALARM_SECONDS)
        if scheduled.alarm is not None:
            if scheduled.alarm_at <= at:
                return
            scheduled.alarm.cancel()
        scheduled.alarm, scheduled.alarm_at = loop.call_at(at, self._ring, scheduled), at

    def _ring(self, scheduled: ScheduledConsumer) -> None:
        """Claim what is due, and for a consumer that may want messages again."""
        scheduled.alarm = None
        scheduled.consumer.woken()
        now = self._clock.now()
        for shard in scheduled.shards:
            if shard.state is State.IDLE and shard.is_due(now):
                self._schedule(shard)
        self._schedule_held_up(scheduled)
        self._set_alarm(scheduled)

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

    async def _serve(self, group: ClaimGroup) -> None:
        if group.woken:
            group.woken = False
            for shard in group.subscriptions.values():
                shard.retried_until = None
                self._schedule(shard)  # one that has turns of its own waits for its next
        targets, giving_way = self._choose(group)
        group.queued = False
        if group.pending:
            self._queue(group)
        if giving_way:
            await self._add_old_ones(group.shard_id, giving_way, targets)
        if targets:
            await self._claim(group, targets)

    def _choose(self, group: ClaimGroup) -> tuple[dict[ShardSubscription, ClaimTarget], list[ShardSubscription]]:
        """The targets of this turn; and subscriptions that give way unless their messages have waited too long."""
        chosen: dict[ShardSubscription, ClaimTarget] = {}
        giving_way: list[ShardSubscription] = []
        now = self._clock.now()
        while group.pending and len(chosen) + len(giving_way) < MAX_TARGETS:
            shard = next(iter(group.pending))
            del group.pending[shard]
            gives_way = shard.gives_way(now)
            shard.state, shard.again = State.CLAIMING, False
            if not gives_way:
                self._begin(shard, chosen, now)
            elif (old_at := shard.old_at(now)) and old_at <= now:
                giving_way.append(shard)
            else:
                self._wait(shard)
        return chosen, giving_way

    def _begin(self, shard: ShardSubscription, chosen: dict[ShardSubscription, ClaimTarget], now: datetime) -> None:
        try:
            target = shard.scheduled.consumer.begin(now, due=shard.is_due(now))
        except Exception as error:  # which must not affect other consumers
            self._fail(shard, None, error)
            return
        if target is not None:
            chosen[shard] = shard.restrained(target, now)
        else:
            self._wait(shard)

    async def _add_old_ones(
        self, shard_id: int, giving_way: Sequence[ShardSubscription], chosen: dict[ShardSubscription, ClaimTarget]
    ) -> None:
        now = self._clock.now()
        consumers = [shard.scheduled for shard in giving_way]
        asked = [(each.consumer.subscription, each.levels) for each in consumers if each.levels is not None]
        try:
            await read_ages(self._database, shard_id, asked, now)
        except Exception as error:
            for shard in giving_way:
                self._fail(shard, None, error)
            return
        for shard in giving_way:
            if shard.scheduled.removed:
                shard.state = State.IDLE
            elif shard.gives_way(now):
                self._wait(shard)
                self._schedule_held_up(shard.scheduled)  # the shards that go first may have none left
            else:
                self._begin(shard, chosen, now)

    def _wait(self, shard: ShardSubscription) -> None:
        self._hold_up(shard)
        self._set_alarm(shard.scheduled)

    def _hold_up(self, shard: ShardSubscription) -> None:
        shard.state = State.HELD_UP
        shard.scheduled.held_up[shard] = None

    # --- claims --------------------------------------------------------------------------------------------------

    async def _claim(self, group: ClaimGroup, targets: Mapping[ShardSubscription, ClaimTarget]) -> None:
        left = dict(targets)  # without an answer yet
        try:
            await self._claim_for(group, targets, left)
            for shard, target in tuple(left.items()):  # it failed, maybe because of one of them
                await self._claim_for(group, {shard: target}, left)
        except BaseException:
            for shard, target in left.items():
                self._fail(shard, target, Unavailable("The broker stops."))
            raise

    async def _claim_for(
        self,
        group: ClaimGroup,
        targets: Mapping[ShardSubscription, ClaimTarget],
        left: dict[ShardSubscription, ClaimTarget],
    ) -> None:
        """Claim in one transaction.

        Takes the targets that have an answer from `left`: none, if each is to be tried alone.
        """
        now, begun_at = self._clock.now(), asyncio.get_running_loop().time()
        request = ClaimRequest(
            shard_id=group.shard_id,
            targets=list(targets.values()),
            now=now,
            clock=self._clock.now,
            jitter=self._jitter(),
            skip_locked=not self._waits,
            turn=partial(self._loop_turns.turn, group.path[0]),
        )
        try:
            claimed = await retrying(lambda: claim_at_any_node(self._database, request, self._attempt_ids), Aborted)
        except Exception as error:
            if len(targets) == 1 or isinstance(error, Unavailable):
                for shard in targets:
                    self._fail(shard, left.pop(shard), error)
            return
        self._counts.claimed(claimed.values())
        for shard, target in targets.items():
            del left[shard]
            answer = Answer(group.shard_id, target, claimed[target.subscription_id], now, begun_at)
            subscription = shard.scheduled.consumer.subscription
            if subscription.transforms and self.transforms is not None and any(answer.claimed.deliveries):
                self._transforming += 1
                self._tasks.start(self._transform(shard, answer, self.transforms), name="transforms of a claim")
            else:
                self._conclude(shard, answer)

    def _fail(self, shard: ShardSubscription, target: ClaimTarget | None, error: BaseException) -> None:
        """Claim again soon: the claim may have committed though it failed, and the next finds when its messages are
        due.
        """
        shard.go_alone(False)
        shard.due_at = self._clock.now() + timedelta(seconds=_FAILED_SECONDS * random.uniform(0.5, 1))  # noqa: S311
        shard.state = State.IDLE
        shard.scheduled.held_up.pop(shard, None)  # if it was the answer that could not be taken
        shard.scheduled.consumer.fail(target, error)
        self._set_alarm(shard.scheduled)

    async def _transform(self, shard: ShardSubscription, answer: Answer, transforms: DeliveryTransforms) -> None:
        """Transform the messages before the consumer gets them; others have turns meanwhile."""
        try:
            transformed = await transforms.transformed(shard.scheduled.consumer.subscription, answer)
        except asyncio.CancelledError:
            self._fail(shard, answer.target, Unavailable("The broker stops."))
            raise
        except Exception as error:
            self._fail(shard, answer.target, error)
        else:
            self._conclude(shard, transformed)
        finally:
            self._transforming -= 1
            self._served.set()

    def _conclude(self, shard: ShardSubscription, answer: Answer) -> None:
        """Give the consumer the answer of a claim, and decide when to claim again."""
        self._counts.ended(shard.scheduled.consumer.subscription.name, answer.claimed)
        shard.go_alone(self._goes_alone(shard, answer))
        if shard.finish(answer, waits=self._waits):
            self._hold_up(shard)  # until the consumer has been asked
        try:
            shard.scheduled.consumer.accept(answer)
        except Exception as error:
            self._fail(shard, None, error)
            return
        if not shard.scheduled.removed:
            self._schedule_held_up(shard.scheduled)
            self._set_alarm(shard.scheduled)

    def _goes_alone(self, shard: ShardSubscription, answer: Answer) -> bool:
        """Whether the next claim for it would keep others waiting: for a cursor, or for a filter that scans far."""
        rest = answer.claimed.rest
        if not isinstance(rest, More):
            return isinstance(rest, Locked) and self._waits
        took = asyncio.get_running_loop().time() - answer.begun_at
        may_be_long = shard.is_alone or answer.target.filter_path is not None
        return may_be_long and took >= LONG_SECONDS
