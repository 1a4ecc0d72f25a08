"""The state of the scheduler of claims: consumers in their shards, and the groups in which they wait for turns."""

import asyncio
import random
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, auto
from operator import attrgetter

from msgspec.structs import replace

from broker.domain.allocation import RETRY_SPACING
from broker.domain.names import project_of
from broker.domain.priority import MAX_LEVELS
from broker.domain.subscription import Subscription
from broker.runtime.claim_levels import AllLevels, Levels
from broker.runtime.consumer import Answer, Consumer
from broker.runtime.fair_turns import URGENT
from broker.store.claim.request import ClaimTarget, Gone, Locked, More, Quiet

GroupPath = tuple[str, *tuple[Hashable, ...]]  # the project, and a part of it
_LOCKED = timedelta(milliseconds=20)  # after which a claim for a cursor that was locked is tried again


class State(Enum):
    """The state of a subscription in a shard."""

    IDLE = auto()  # there is nothing to claim before `due_at`
    QUEUED = auto()  # to be claimed for in the next turn of its group
    CLAIMING = auto()
    HELD_UP = auto()  # there may be messages, and the consumer did not want them


@dataclass(eq=False, slots=True)
class ShardSubscription:
    """A subscription in one of its shards.

    `group`: the claim group in which it waits for the next turn; `own_group`: the one of its project.  `again`: it
    was woken while it was claimed for.  `due_at`: when to claim redeliveries; None: no time is known.  `level`: the
    urgency of the messages in the shard (claim_levels.py).  `retried_until`: until then all messages in the shard,
    as far as is known, were just retried (domain/allocation.py).
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
        levels = self.scheduled.levels
        if levels is None:
            return False
        priorities = self.scheduled.consumer.subscription.priorities
        mine = levels.rank(self.level, priorities)
        return any(
            levels.rank(other.level, priorities) < mine
            and other.may_have_messages(now)
            and not other.only_just_retried(now)
            for other in self.scheduled.shards
        )

    def old_at(self, now: datetime) -> datetime | None:
        """When its messages may have waited too long to give way; None: never."""
        levels, subscription = self.scheduled.levels, self.scheduled.consumer.subscription
        return None if levels is None else levels.old_at(self.shard_id, self.level, subscription.priorities, now)

    def finish(self, answer: Answer, *, waits: bool) -> bool:
        """Note the answer of a claim, which `waits` for cursors or not; whether there may be messages now."""
        target, now = answer.target, answer.now
        if self.scheduled.levels is not None:
            priorities = self.scheduled.consumer.subscription.priorities
            self.scheduled.levels.took(self.level, answer.count, answer.claimed.rest, priorities)
        self.claimed_at = answer.begun_at
        self.state = State.IDLE
        if isinstance(answer.claimed.rest, Gone):  # the consumer is told of the change
            self.due_at = None
            return self.again
        if isinstance(answer.claimed.rest, Locked):
            if not waits:
                self.due_at = now + _LOCKED
            return waits or self.again
        only_retried = answer.claimed.only_just_retried and not self.again
        self.retried_until = now + RETRY_SPACING if only_retried else None
        if target.looks_for_due and self.is_due(now):
            self.due_at = None
        served = [bool(deliveries) or answer.transformed for deliveries in answer.claimed.deliveries]
        if any(served):
            # The messages are due then if they are not settled, which is not in the answer.
            self.due_by(now + target.ack_deadline)
        if isinstance(answer.claimed.rest, More):
            self.due_by(now if target.looks_for_due else None)
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

    `held_up`: shards that wait until it wants messages, or until shards that go first have none.  `levels`: which
    shards go first; None: all are alike.
    """

    consumer: Consumer
    shard_ids: tuple[int, ...] = ()  # of its subscription when `shards` was made
    shards: list[ShardSubscription] = field(default_factory=list)
    held_up: dict[ShardSubscription, None] = field(default_factory=dict)
    alarm: asyncio.TimerHandle | None = None
    alarm_at: float = 0.0  # not asked of the handle: uvloop's has no time if that is less than a millisecond away
    removed: bool = False
    levels: Levels | None = None
    urgent: bool = False  # when `shards` was made

    def in_turn(self) -> Sequence[ShardSubscription]:
        """All its shards, the most urgent first, then the longest unclaimed.

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
        if self.levels is None or not found:
            return found
        priorities = self.consumer.subscription.priorities
        ranks = [self.levels.rank(shard.level, priorities) for shard in found]
        first, olds = min(ranks), [shard.old_at(now) for shard in found]
        return [
            shard
            for shard, rank, old_at in zip(found, ranks, olds, strict=True)
            if rank == first or (old_at is not None and old_at <= now)
        ]

    def next_due_at(self, now: datetime) -> datetime | None:
        """When to claim again though nothing has happened: messages are due, were retried long enough ago, or may
        have waited too long.
        """
        times = [shard.due_at for shard in self.shards if shard.due_at is not None and shard.state is State.IDLE]
        times += [each.retried_until for each in self.held_up if each.retried_until and each.retried_until > now]
        if self.levels is not None and (old_at := self.next_old_at(now)):
            times.append(old_at)
        return min(times, default=None)

    def next_old_at(self, now: datetime) -> datetime | None:
        """When the messages of the next held-up shard may have waited too long."""
        olds = [shard.old_at(now) for shard in self.held_up]
        return min((old_at for old_at in olds if old_at is not None and old_at > now), default=None)


_IN_DOUBT = ""  # in place of a project: of several


class ClaimGroups:
    """The common groups of all shards that there is a consumer for."""

    def __init__(self) -> None:
        self._shards: dict[int, dict[GroupPath, ClaimGroup]] = {}  # of each shard, by their paths
        self._doubtful: dict[int, ClaimGroup] = {}  # subscriptions in doubt, by shard
        self._levels = AllLevels()

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
        scheduled.levels = self._levels.of(subscription) if subscription.levels else None
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
