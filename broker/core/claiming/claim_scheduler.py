"""Decides when to claim, and for which subscriptions: wake-ups, turns, alarms and retries of pulls and pushes.

    a publish, a nack, a new consumer ──► queued ──► turn of the group ──► claim for all that want ──► accept
                                             ▲                                  │
                       an alarm rings ───────┤◄── an alarm is set ◄── Quiet ────┤
                  a consumer is ready ───────┘◄── held up: wants nothing ◄ More ┘

The first half of the module is the state that the scheduler keeps: each consumer (`ScheduledConsumer`) in each of
its shards (`ShardSubscription`), and the groups in which they wait for turns (`ClaimGroup`).

Turns are shared by project, and in a project by shard, by the seconds that claims take; urgent subscriptions of a
project go first (fair_turns.py).  A claim serves all subscriptions of a project that want messages from the shard,
up to 1,000 in one transaction; a subscription whose claims take long has turns of its own.  Consumers in doubt
(push endpoints that fail, are slow or are new) count as one project, so however many projects have such endpoints,
the others wait for one turn of them.  A wake-up while a claim is under way is handled after it, so none is lost.
"""

import asyncio
import random
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, auto
from functools import partial
from operator import attrgetter

from msgspec.structs import replace

from broker.core.claiming.claim_counts import ClaimCounts
from broker.core.claiming.consumer import Answer, Consumer
from broker.core.claiming.hooks import AnswerHook, ShardOrder, ShardOrders
from broker.core.claiming.transaction.allocation import RETRY_SPACING
from broker.core.claiming.transaction.claim import claim_at_any_node
from broker.core.claiming.transaction.request import (
    MAX_TARGETS,
    ClaimRequest,
    ClaimTarget,
    Gone,
    Locked,
    More,
    Quiet,
)
from broker.core.context.core import Core
from broker.core.process.jitter import Jitter
from broker.core.process.retrying import retrying
from broker.fairness.fair_turns import URGENT, FairTurns, TurnFor
from broker.model.errors import Aborted, Unavailable
from broker.model.names import project_of
from broker.model.priorities import MAX_LEVELS
from broker.model.subscription import Subscription

GroupPath = tuple[str, *tuple[Hashable, ...]]  # the project, and a part of it
_FAILED_SECONDS = 1.0  # a failed claim is tried again after this time at most
_SHORTEST_ALARM_SECONDS = 0.001
LONG_SECONDS = 0.05  # claims that take longer leave the last slot to others; a usual claim takes a tenth of this
_LOCKED = timedelta(milliseconds=20)  # a claim for a locked cursor is tried again after this time
_IN_DOUBT = ""  # stands for several projects


# --- the state of consumers, shards and groups --------------------------------------------------------------------


class State(Enum):
    """The state of a subscription in a shard."""

    IDLE = auto()  # there is nothing to claim before `due_at`
    QUEUED = auto()  # to be claimed for in the next turn of its group
    CLAIMING = auto()
    HELD_UP = auto()  # there may be messages, but the consumer wanted none


@dataclass(eq=False, slots=True)
class ShardSubscription:
    """A subscription in one of its shards.

    `group`: the claim group in which it waits for the next turn; `own_group`: the one of its project.  `again`: it
    was woken while it was claimed for.  `due_at`: when to claim redeliveries; None: no time is known.  `level`: the
    urgency of the messages in the shard.  `retried_until`: until then all messages in the shard, as far as is
    known, were just retried (core/claiming/transaction/allocation.py).
    """

    scheduled: "ScheduledConsumer"
    shard_id: int
    group: "ClaimGroup"
    own_group: "ClaimGroup"
    state: State = State.IDLE
    again: bool = False
    due_at: datetime | None = None
    claimed_at: float = 0.0  # when its last claim began, by the clock of the event loop
    level: int = MAX_LEVELS
    retried_until: datetime | None = None

    def due_by(self, time: datetime | None) -> None:
        """Claim redeliveries at this time, or earlier."""
        if time is not None and (self.due_at is None or time < self.due_at):
            self.due_at = time

    def is_due(self, now: datetime) -> bool:
        return self.due_at is not None and self.due_at <= now

    def may_have_messages(self, now: datetime) -> bool:
        return self.state is not State.IDLE or self.is_due(now)

    def only_just_retried(self, now: datetime) -> bool:
        return self.retried_until is not None and now < self.retried_until

    def others_go_first(self, now: datetime) -> bool:
        """Whether other shards may have messages that go before those that were just retried in this one."""
        return any(
            other is not self and other.may_have_messages(now) and not other.only_just_retried(now)
            for other in self.scheduled.shards
        )

    def restrained(self, target: ClaimTarget, now: datetime) -> ClaimTarget:
        """The target, which leaves just retried messages of this shard while others may have messages."""
        return replace(target, leaves_just_retried=True) if self.others_go_first(now) else target

    def gives_way(self, now: datetime) -> bool:
        """Whether another shard of its consumer may have messages that go first.

        This one is claimed for in a moment then, or once the consumer wants messages.
        """
        if self.only_just_retried(now) and self.others_go_first(now):
            return True
        order = self.scheduled.order
        if order is None:
            return False
        priorities = self.scheduled.consumer.subscription.priorities
        mine = order.rank(self.level, priorities)
        return any(
            order.rank(other.level, priorities) < mine
            and other.may_have_messages(now)
            and not other.only_just_retried(now)
            for other in self.scheduled.shards
        )

    def old_at(self, now: datetime) -> datetime | None:
        """Returns when its messages may have waited too long to give way; None: never."""
        order, subscription = self.scheduled.order, self.scheduled.consumer.subscription
        return None if order is None else order.old_at(self.shard_id, self.level, subscription.priorities, now)

    def finish(self, answer: Answer, *, waits: bool) -> bool:
        """Take note of the answer of a claim, which `waits` for cursors or not.  Returns whether there may be more
        messages now.
        """
        target, now = answer.target, answer.now
        if self.scheduled.order is not None:
            priorities = self.scheduled.consumer.subscription.priorities
            self.scheduled.order.took(self.level, answer.count, answer.claimed.rest, priorities)
        self.claimed_at = answer.begun_at
        self.state = State.IDLE
        if isinstance(answer.claimed.rest, Gone):  # the consumer learns of the change
            self.due_at = None
            return self.again
        if isinstance(answer.claimed.rest, Locked):
            if not waits:
                self.due_at = now + _LOCKED
            return waits or self.again
        only_retried = answer.claimed.only_just_retried and not self.again
        self.retried_until = now + RETRY_SPACING if only_retried else None
        if target.includes_due and self.is_due(now):
            self.due_at = None
        served = [bool(deliveries) or answer.transformed for deliveries in answer.claimed.deliveries]
        if any(served):
            # The messages are due then unless they are settled, which the answer does not show.
            self.due_by(now + target.ack_deadline)
        if isinstance(answer.claimed.rest, More):
            self.due_by(now if target.includes_due else None)
            return True
        assert isinstance(answer.claimed.rest, Quiet)
        self.due_by(answer.claimed.rest.until)
        return self.again or (all(served) and not target.wants_next)  # the claim has not read the next time then

    @property
    def is_alone(self) -> bool:
        return self.group.is_for_one

    def go_alone(self, alone: bool) -> None:
        """Have turns of its own from the next claim on, or go back to the others."""
        if alone and not self.group.is_for_one:
            name = self.scheduled.consumer.subscription.name
            self.group = ClaimGroup(self.shard_id, self.own_group.path_of(name), self.group)
        elif not alone and self.group.common is not None:
            self.group = self.group.common

    def join(self, group: "ClaimGroup") -> None:
        """Wait with the others of a common group, unless it has turns of its own."""
        if not self.group.is_for_one:
            self.group = group


@dataclass(eq=False, slots=True)
class ClaimGroup:
    """Subscriptions that one claim serves: all of one project in a shard, or the urgent ones of it; those of all
    projects that are in doubt; or one of these alone, whose claims take long.

    `path`: in whose turns it is served.  `common`: the group of the others, if this one is for one subscription.
    `pending`: what to claim for next; `subscriptions`: all of a common group; `woken`: claim for all of them.
    """

    shard_id: int
    path: GroupPath
    common: "ClaimGroup | None" = None
    subscriptions: dict[int, ShardSubscription] = field(default_factory=dict)  # by subscription
    pending: dict[ShardSubscription, None] = field(default_factory=dict)
    woken: bool = False
    queued: bool = False
    queued_at: float = 0.0

    @property
    def is_for_one(self) -> bool:
        return self.common is not None

    def path_of(self, name: str) -> GroupPath:
        """The path of a group for one of its subscriptions."""
        project = self.path[0]
        return (project, URGENT, name) if URGENT in self.path else (project, name)


@dataclass(eq=False, slots=True)
class ScheduledConsumer:
    """A consumer in all its shards.

    `held_up`: shards that wait until it wants messages, or until shards that go first have none.  `order`: which
    shards go first; None: all are alike.
    """

    consumer: Consumer
    shard_ids: tuple[int, ...] = ()  # of its subscription when `shards` was made
    shards: list[ShardSubscription] = field(default_factory=list)
    held_up: dict[ShardSubscription, None] = field(default_factory=dict)
    alarm: asyncio.TimerHandle | None = None
    alarm_at: float = 0.0  # not read from the handle: uvloop's has no time if it is less than a millisecond ahead
    removed: bool = False
    order: ShardOrder | None = None
    urgent: bool = False  # when `shards` was made

    def in_turn(self) -> Sequence[ShardSubscription]:
        """Returns its shards in the order of claims: the most urgent first, then the longest unclaimed.

        Shards that were never claimed for come in random order: a pull that does not wait makes a new consumer, and
        the first shard with a backlog would get all of its claims.
        """
        if len(self.shards) == 1:
            return self.shards
        shuffled = random.sample(self.shards, len(self.shards))
        return sorted(shuffled, key=attrgetter("level", "claimed_at"))

    def next_held_up(self, now: datetime) -> list[ShardSubscription]:
        """The held-up shards to claim for now, the longest unclaimed first: one turn may bring enough.

        A less urgent shard waits until the most urgent ones have nothing more, unless its messages may have waited
        too long; a shard of just retried messages waits until no other has messages.
        """
        found = sorted(self.held_up, key=lambda shard: shard.claimed_at)
        found = [each for each in found if not (each.only_just_retried(now) and each.others_go_first(now))]
        if self.order is None or not found:
            return found
        priorities = self.consumer.subscription.priorities
        ranks = [self.order.rank(shard.level, priorities) for shard in found]
        first, olds = min(ranks), [shard.old_at(now) for shard in found]
        return [
            shard
            for shard, rank, old_at in zip(found, ranks, olds, strict=True)
            if rank == first or (old_at is not None and old_at <= now)
        ]

    def next_due_at(self, now: datetime) -> datetime | None:
        """Returns when to claim again without a wake-up.

        Then messages are due, were retried long enough ago, or may have waited too long.  None: there is no such
        time.
        """
        times = [shard.due_at for shard in self.shards if shard.due_at is not None and shard.state is State.IDLE]
        times += [each.retried_until for each in self.held_up if each.retried_until and each.retried_until > now]
        if self.order is not None and (old_at := self.next_old_at(now)):
            times.append(old_at)
        return min(times, default=None)

    def next_old_at(self, now: datetime) -> datetime | None:
        """Returns when the messages of the next held-up shard may have waited too long; None: there is none."""
        olds = [shard.old_at(now) for shard in self.held_up]
        return min((old_at for old_at in olds if old_at is not None and old_at > now), default=None)


class ClaimGroups:
    """The common groups of all shards that there is a consumer for."""

    def __init__(self) -> None:
        self._shards: dict[int, dict[GroupPath, ClaimGroup]] = {}  # of each shard, by their paths
        self._doubtful: dict[int, ClaimGroup] = {}  # subscriptions in doubt, by shard
        self.orders: ShardOrders | None = None  # without them levels do not order the shards

    @property
    def shards(self) -> Collection[int]:
        return self._shards.keys()

    def of_shard(self, shard_id: int) -> Iterable[ClaimGroup]:
        return self._shards.get(shard_id, {}).values()

    def add(self, scheduled: ScheduledConsumer) -> None:
        """Add its consumer in each shard of its subscription in which it is not yet."""
        subscription = scheduled.consumer.subscription
        for shard_id in [each for each in subscription.shard_ids if each not in scheduled.shard_ids]:
            group = self._own_group(subscription, shard_id)
            level = subscription.levels.get(shard_id, MAX_LEVELS)
            shard = ShardSubscription(scheduled, shard_id, group, group, level=level)
            group.subscriptions[subscription.subscription_id] = shard
            scheduled.shards.append(shard)
        scheduled.shard_ids = subscription.shard_ids
        orders = self.orders if subscription.levels else None
        scheduled.order = None if orders is None else orders.of(subscription)
        scheduled.urgent = subscription.is_urgent

    def move(self, scheduled: ScheduledConsumer) -> None:
        """Move a consumer that has become urgent, or is not any more.  A queued shard stays until its turn."""
        subscription = scheduled.consumer.subscription
        for shard in scheduled.shards:
            self._leave_group(shard)
            shard.own_group = self._own_group(subscription, shard.shard_id)
            shard.own_group.subscriptions[subscription.subscription_id] = shard
        scheduled.urgent = subscription.is_urgent

    def remove(self, scheduled: ScheduledConsumer) -> None:
        for shard in scheduled.shards:
            shard.group.pending.pop(shard, None)
            self._leave_group(shard)
            if not self._shards[shard.shard_id]:
                del self._shards[shard.shard_id]
                self._doubtful.pop(shard.shard_id, None)
        scheduled.shards, scheduled.held_up = [], {}  # no reference cycle is left to the garbage collector

    def _own_group(self, subscription: Subscription, shard_id: int) -> ClaimGroup:
        project = project_of(subscription.name)
        path: GroupPath = (project, URGENT, shard_id) if subscription.is_urgent else (project, shard_id)
        return self._shards.setdefault(shard_id, {}).setdefault(path, ClaimGroup(shard_id, path))

    def _leave_group(self, shard: ShardSubscription) -> None:
        group = shard.own_group
        del group.subscriptions[shard.scheduled.consumer.subscription.subscription_id]
        if not group.subscriptions:
            del self._shards[shard.shard_id][group.path]

    def doubtful(self, shard_id: int) -> ClaimGroup:
        """The group of the subscriptions of a shard that are in doubt."""
        group = self._doubtful.get(shard_id)
        if group is None:
            group = self._doubtful[shard_id] = ClaimGroup(shard_id, (_IN_DOUBT, shard_id))
        return group


# --- the scheduler ------------------------------------------------------------------------------------------------


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
        self._answer_hook: AnswerHook | None = None
        self._served = asyncio.Event()
        self._stopping = False

    def add_hooks(self, *, orders: ShardOrders | None, answer: AnswerHook | None) -> None:
        """Let a feature order shards, and change answers, from before the first claim on; None: it does not."""
        if orders is not None:
            self._groups.orders = orders
        if answer is not None:
            self._answer_hook = answer

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
        """Claim because a shard was published to, or messages of a subscription are due (neither given: maybe)."""
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
        """Serve the turns that wait in one more task, up to so many at once."""
        if self._serving < self._turns_at_once and not self._stopping:
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
                    seconds = self._counts.turn_ended(turn.item.path[0], queued_at, begun_at)
                    more_wait = self._turns.end(turn, seconds)
                if more_wait:
                    self._serve_more()
        finally:
            self._serving -= 1
            self._served.set()

    async def _serve(self, group: ClaimGroup) -> None:
        if group.woken:
            group.woken = False
            for shard in group.subscriptions.values():
                shard.retried_until = None
                self._schedule(shard)  # a shard with turns of its own waits for its next one
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
        except Exception as error:  # it must not affect other consumers
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
        waiting = [(each.consumer.subscription, each.order) for each in consumers if each.order is not None]
        assert self._groups.orders is not None  # otherwise the shards have no order
        try:
            await self._groups.orders.read_ages(shard_id, waiting, now)
        except Exception as error:
            for shard in giving_way:
                self._fail(shard, None, error)
            return
        for shard in giving_way:
            if shard.scheduled.removed:
                shard.state = State.IDLE
            elif shard.gives_way(now):
                self._wait(shard)
                self._schedule_held_up(shard.scheduled)  # the shards before it may have no messages left
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
            for shard, target in tuple(left.items()):  # it failed, possibly because of one target
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
        answers = [
            (shard, Answer(group.shard_id, target, claimed[target.subscription_id], now, begun_at))
            for shard, target in targets.items()
        ]
        self._counts.claimed(
            [(shard.scheduled.consumer.subscription.name, each.claimed) for shard, each in answers]
        )
        for shard, answer in answers:
            del left[shard]
            subscription = shard.scheduled.consumer.subscription
            if subscription.transforms and self._answer_hook is not None and any(answer.claimed.deliveries):
                self._transforming += 1
                self._tasks.start(self._transform(shard, answer, self._answer_hook), name="transforms of a claim")
            else:
                self._conclude(shard, answer)

    def _fail(self, shard: ShardSubscription, target: ClaimTarget | None, error: BaseException) -> None:
        """Claim again soon: the claim may have committed although it failed, and the next one finds out when its
        messages are due.
        """
        shard.go_alone(False)
        shard.due_at = self._clock.now() + timedelta(seconds=_FAILED_SECONDS * random.uniform(0.5, 1))  # noqa: S311
        shard.state = State.IDLE
        shard.scheduled.held_up.pop(shard, None)  # if it was held up because of the answer
        shard.scheduled.consumer.fail(target, error)
        self._set_alarm(shard.scheduled)

    async def _transform(self, shard: ShardSubscription, answer: Answer, hook: AnswerHook) -> None:
        """Transform the messages before the consumer gets them; others have turns meanwhile."""
        try:
            transformed = await hook.transformed(shard.scheduled.consumer.subscription, answer)
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
        shard.go_alone(self._goes_alone(shard, answer))
        if shard.finish(answer, waits=self._waits):
            self._hold_up(shard)  # until the consumer wants messages
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
