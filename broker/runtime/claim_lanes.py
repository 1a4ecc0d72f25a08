"""What the scheduler of claims knows: consumers in their shards, and the lanes in which they wait for turns."""

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
from broker.runtime.claim_levels import Levels, LevelsOfAll, level_in
from broker.runtime.consumer import Answer, Consumer
from broker.runtime.fair_turns import URGENT
from broker.store.claim.request import ClaimTarget, Gone, Locked, More, Quiet

LanePath = tuple[str, *tuple[Hashable, ...]]  # whose project it is, and what in it
_LOCKED = timedelta(milliseconds=20)  # after which a cursor that somebody else held is tried again


class State(Enum):
    """Of a consumer in a shard."""

    IDLE = auto()  # nothing is known of, before `due_at`
    QUEUED = auto()  # to be claimed for in the lane's next turn
    CLAIMING = auto()
    HELD_UP = auto()  # there may be something, and the consumer did not want it


@dataclass(eq=False, slots=True)
class Watch:
    """A consumer in one of its shards.

    `lane`: where it waits for the next turn; `home`: its project's.  `again`: something came while it was claimed
    for.  `due_at`: when to look for redeliveries; None: nothing is known of.  `level`: how urgent what is in the
    shard is (claim_levels.py).  `retried_until`: until then the shard has only messages that were just retried, as
    far as is known (domain/allocation.py).
    """

    member: "Member"
    shard_id: int
    lane: "Lane"
    home: "Lane"
    state: State = State.IDLE
    again: bool = False
    due_at: datetime | None = None
    claimed_at: float = 0.0  # when its last claim began, by the clock of the event loop
    level: int = MAX_LEVELS
    retried_until: datetime | None = None

    def look_at(self, time: datetime | None) -> None:
        """For redeliveries then, or before."""
        if time is not None and (self.due_at is None or time < self.due_at):
            self.due_at = time

    def is_due(self, now: datetime) -> bool:
        return self.due_at is not None and self.due_at <= now

    def may_have_something(self, now: datetime) -> bool:
        return self.state is not State.IDLE or self.is_due(now)

    def only_just_retried(self, now: datetime) -> bool:
        return self.retried_until is not None and now < self.retried_until

    def others_go_first(self, now: datetime) -> bool:
        """Whether other shards may have messages that go before those that were just retried in this one."""
        return any(
            other is not self and other.may_have_something(now) and not other.only_just_retried(now)
            for other in self.member.watches
        )

    def restrained(self, target: ClaimTarget, now: datetime) -> ClaimTarget:
        """The target, who leaves what was just retried in this shard while others may have something."""
        return replace(target, leaves_just_retried=True) if self.others_go_first(now) else target

    def gives_way(self, now: datetime) -> bool:
        """Whether another shard may have something for its consumer, and goes first: it is looked at in a moment,
        or once the consumer wants something.
        """
        if self.only_just_retried(now) and self.others_go_first(now):
            return True
        levels = self.member.levels
        if levels is None:
            return False
        priorities = self.member.consumer.subscription.priorities
        mine = levels.rank(self.level, priorities)
        return any(
            levels.rank(other.level, priorities) < mine
            and other.may_have_something(now)
            and not other.only_just_retried(now)
            for other in self.member.watches
        )

    def old_at(self, now: datetime) -> datetime | None:
        """When what waits there may have waited too long to give way; None: there is nothing to ask."""
        levels, subscription = self.member.levels, self.member.consumer.subscription
        return None if levels is None else levels.old_at(self.shard_id, self.level, subscription.priorities, now)

    def note(self, answer: Answer, *, waits: bool) -> bool:
        """When to look for redeliveries next, after a claim, which `waits` for cursors or not; returns whether
        there may be something now.
        """
        target, now = answer.target, answer.now
        if isinstance(answer.claimed.rest, Gone):  # which will be heard of
            self.due_at = None
            return False
        if isinstance(answer.claimed.rest, Locked):
            if not waits:
                self.due_at = now + _LOCKED
            return waits
        only_retried = answer.claimed.only_just_retried and not self.again
        self.retried_until = now + RETRY_SPACING if only_retried else None
        if target.looks_for_due and self.is_due(now):
            self.due_at = None
        served = [bool(deliveries) or answer.transformed for deliveries in answer.claimed.deliveries]
        if any(served):
            # Should they not be settled they fall due then, which is not in the answer.
            self.look_at(now + target.ack_deadline)
        if isinstance(answer.claimed.rest, More):
            self.look_at(now if target.looks_for_due else None)
            return True
        assert isinstance(answer.claimed.rest, Quiet)
        self.look_at(answer.claimed.rest.until)
        return all(served) and not target.wants_next  # then the claim has not asked what is next

    def took(self, answer: Answer) -> None:
        """A claim has brought something, or nothing."""
        if self.member.levels is not None:
            priorities = self.member.consumer.subscription.priorities
            self.member.levels.took(self.level, answer.count, answer.claimed.rest, priorities)

    @property
    def is_alone(self) -> bool:
        return self.lane.alone

    def go_alone(self, alone: bool) -> None:
        """From the next look on, or back to the others."""
        if alone and not self.lane.alone:
            name = self.member.consumer.subscription.name
            self.lane = Lane(self.shard_id, self.home.path_of(name), self.lane)
        elif not alone and self.lane.common is not None:
            self.lane = self.lane.common

    def go_with(self, lane: "Lane") -> None:
        """With those of a common lane, unless it goes alone."""
        if not self.lane.alone:
            self.lane = lane


@dataclass(eq=False, slots=True)
class Lane:
    """Those who are claimed for together: what one project has in a shard, or has there that is urgent; what all
    projects have there that is in doubt; or one of these, whose claims take long.

    `path`: whose turns they are.  `common`: where the others are, if this one is for one alone.  `looks`: whom to
    claim for next; `watches`: all of them, of a common one; `woken`: they are all to be looked at.
    """

    shard_id: int
    path: LanePath
    common: "Lane | None" = None
    watches: dict[int, Watch] = field(default_factory=dict)  # by subscription
    looks: dict[Watch, None] = field(default_factory=dict)
    woken: bool = False
    queued: bool = False
    queued_at: float = 0.0

    @property
    def alone(self) -> bool:
        return self.common is not None

    def path_of(self, name: str) -> LanePath:
        """Of a lane for one of them."""
        project = self.path[0]
        return (project, URGENT, name) if URGENT in self.path else (project, name)


@dataclass(eq=False, slots=True)
class Member:
    """A consumer, in all its shards.  `held_up`: watches that wait until it wants something, or until what goes
    before them is done.  `levels`: what goes first; None: all its shards are alike.
    """

    consumer: Consumer
    shard_ids: tuple[int, ...] = ()  # of its subscription, as it was when its watches were made
    watches: list[Watch] = field(default_factory=list)
    held_up: dict[Watch, None] = field(default_factory=dict)
    alarm: asyncio.TimerHandle | None = None
    alarm_at: float = 0.0  # not asked of the handle: uvloop's has no time if that is less than a millisecond away
    removed: bool = False
    levels: Levels | None = None
    urgent: bool = False  # when its watches were made

    def in_turn(self) -> Sequence[Watch]:
        """All its watches, the most urgent first, then the longest unclaimed.

        Those that were never claimed for come in random order: a pull that does not wait makes a new member, and
        the first shard with a backlog would get all of its claims.
        """
        if len(self.watches) == 1:
            return self.watches
        shuffled = random.sample(self.watches, len(self.watches))
        return sorted(shuffled, key=attrgetter("level", "claimed_at"))

    def next_held_up(self, now: datetime) -> list[Watch]:
        """Whose claim is longest ago first: what one turn brings may be all that is wanted.  What is less urgent
        is looked at once the most urgent ones have nothing more, unless it may have waited too long; what was just
        retried once no other shard has anything.
        """
        found = sorted(self.held_up, key=lambda watch: watch.claimed_at)
        found = [each for each in found if not (each.only_just_retried(now) and each.others_go_first(now))]
        if self.levels is None or not found:
            return found
        priorities = self.consumer.subscription.priorities
        ranks = [self.levels.rank(watch.level, priorities) for watch in found]
        first, olds = min(ranks), [watch.old_at(now) for watch in found]
        return [
            watch
            for watch, rank, old_at in zip(found, ranks, olds, strict=True)
            if rank == first or (old_at is not None and old_at <= now)
        ]

    def retries_at(self, now: datetime) -> list[datetime]:
        """When what is held up because it was just retried gives way to nothing any more."""
        return [each.retried_until for each in self.held_up if each.retried_until and each.retried_until > now]

    def next_old_at(self, now: datetime) -> datetime | None:
        """When one that is held up may have waited too long, that has not yet."""
        olds = [watch.old_at(now) for watch in self.held_up]
        return min((old_at for old_at in olds if old_at is not None and old_at > now), default=None)


_IN_DOUBT = ""  # in place of a project: of several


class Lanes:
    """The common lanes of all shards that there is a consumer for."""

    def __init__(self) -> None:
        self._shards: dict[int, dict[LanePath, Lane]] = {}  # of each shard, by their paths
        self._doubtful: dict[int, Lane] = {}  # for what is in doubt, by shard
        self._levels = LevelsOfAll()

    @property
    def shards(self) -> Collection[int]:
        return self._shards.keys()

    def of_shard(self, shard_id: int) -> Iterable[Lane]:
        return self._shards.get(shard_id, {}).values()

    def watch(self, member: Member) -> None:
        """Its consumer in each shard of its subscription, in which it is not watched yet."""
        subscription = member.consumer.subscription
        for shard_id in [each for each in subscription.shard_ids if each not in member.shard_ids]:
            lane = self._home(subscription, shard_id)
            watch = Watch(member, shard_id, lane, lane, level=level_in(subscription, shard_id))
            lane.watches[subscription.subscription_id] = watch
            member.watches.append(watch)
        member.shard_ids, member.levels = subscription.shard_ids, self._levels.of(subscription)
        member.urgent = subscription.is_urgent

    def move(self, member: Member) -> None:
        """Its consumer has become urgent, or is so no more.  What is queued stays where it is, until its turn."""
        subscription = member.consumer.subscription
        for watch in member.watches:
            self._leave_home(watch)
            watch.home = self._home(subscription, watch.shard_id)
            watch.home.watches[subscription.subscription_id] = watch
        member.urgent = subscription.is_urgent

    def forget(self, member: Member) -> None:
        for watch in member.watches:
            watch.lane.looks.pop(watch, None)
            self._leave_home(watch)
            if not self._shards[watch.shard_id]:
                del self._shards[watch.shard_id]
                self._doubtful.pop(watch.shard_id, None)
        member.watches, member.held_up = [], {}  # which hold it: so all go at once, and no collector looks

    def _home(self, subscription: Subscription, shard_id: int) -> Lane:
        project = project_of(subscription.name)
        path: LanePath = (project, URGENT, shard_id) if subscription.is_urgent else (project, shard_id)
        return self._shards.setdefault(shard_id, {}).setdefault(path, Lane(shard_id, path))

    def _leave_home(self, watch: Watch) -> None:
        lane = watch.home
        del lane.watches[watch.member.consumer.subscription.subscription_id]
        if not lane.watches:
            del self._shards[watch.shard_id][lane.path]

    def doubtful(self, shard_id: int) -> Lane:
        lane = self._doubtful.get(shard_id)
        if lane is None:
            lane = self._doubtful[shard_id] = Lane(shard_id, (_IN_DOUBT, shard_id))
        return lane
