"""What the scheduler of claims knows: consumers in their shards, and the lanes in which they wait for turns."""

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto

from broker.domain.names import project_of
from broker.domain.priority import MAX_LEVELS
from broker.runtime.consumer import Consumer


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
    shard is, 0 the most; None: it is not.
    """

    member: "Member"
    shard_id: int
    lane: "Lane"
    home: "Lane"
    state: State = State.IDLE
    again: bool = False
    due_at: datetime | None = None
    claimed_at: float = 0.0  # when its last claim began, by the clock of the event loop
    level: int | None = None

    def look_at(self, time: datetime | None) -> None:
        """For redeliveries then, or before."""
        if time is not None and (self.due_at is None or time < self.due_at):
            self.due_at = time

    def is_due(self, now: datetime) -> bool:
        return self.due_at is not None and self.due_at <= now

    def may_have_something(self, now: datetime) -> bool:
        return self.state is not State.IDLE or self.is_due(now)

    def gives_way(self, now: datetime) -> bool:
        """Whether a more urgent shard may have something for its consumer, and goes first: it is looked at in a
        moment, or once the consumer wants something.
        """
        return any(
            other.level is not None and (self.level is None or other.level < self.level)
            for other in self.member.watches
            if other is not self and other.may_have_something(now)
        )

    @property
    def is_alone(self) -> bool:
        return self.lane.alone

    def go_alone(self, alone: bool) -> None:
        """From the next look on, or back to the others."""
        if alone and not self.lane.alone:
            name = self.member.consumer.subscription.name
            self.lane = Lane(self.shard_id, (project_of(name), name), self.lane)
        elif not alone and self.lane.common is not None:
            self.lane = self.lane.common

    def go_with(self, lane: "Lane") -> None:
        """With those of a common lane, unless it goes alone."""
        if not self.lane.alone:
            self.lane = lane


@dataclass(eq=False, slots=True)
class Lane:
    """Those who are claimed for together: what one project has in a shard; what all projects have there that is in
    doubt; or one of these, whose claims take long.

    `path`: whose turns they are.  `common`: where the others are, if this one is for one alone.  `looks`: whom to
    claim for next; `watches`: all of them, of a common one; `woken`: they are all to be looked at.
    """

    shard_id: int
    path: tuple[str, str | int]
    common: "Lane | None" = None
    watches: dict[int, Watch] = field(default_factory=dict)  # by subscription
    looks: dict[Watch, None] = field(default_factory=dict)
    woken: bool = False
    queued: bool = False
    queued_at: float = 0.0

    @property
    def alone(self) -> bool:
        return self.common is not None


@dataclass(eq=False, slots=True)
class Member:
    """A consumer, in all its shards.  `held_up`: watches that wait until it wants something."""

    consumer: Consumer
    shard_ids: tuple[int, ...] = ()  # of its subscription, as it was when its watches were made
    watches: list[Watch] = field(default_factory=list)
    held_up: dict[Watch, None] = field(default_factory=dict)
    alarm: asyncio.TimerHandle | None = None
    alarm_at: float = 0.0  # not asked of the handle: uvloop's has no time if that is less than a millisecond away
    removed: bool = False

    @property
    def has_levels(self) -> bool:
        """Whether what is in some of its shards goes before what is in others."""
        return bool(self.consumer.subscription.levels)

    @property
    def next_held_up(self) -> list[Watch]:
        """Whose claim is longest ago first: what one turn brings may be all that is wanted.  What is less urgent
        is looked at once the most urgent ones have nothing more.
        """
        found = sorted(self.held_up, key=lambda watch: watch.claimed_at)
        if not self.has_levels:
            return found
        levels = [MAX_LEVELS if watch.level is None else watch.level for watch in found]
        return [watch for watch, level in zip(found, levels, strict=True) if level == min(levels)]


_IN_DOUBT = ""  # in place of a project: of several


class Lanes:
    """The common lanes of all shards that there is a consumer for."""

    def __init__(self) -> None:
        self._shards: dict[int, dict[str, Lane]] = {}  # of each shard, by project
        self._doubtful: dict[int, Lane] = {}  # for what is in doubt, by shard

    @property
    def shards(self) -> Collection[int]:
        return self._shards.keys()

    def of_shard(self, shard_id: int) -> Iterable[Lane]:
        return self._shards.get(shard_id, {}).values()

    def watch(self, member: Member) -> None:
        """Its consumer in each shard of its subscription, in which it is not watched yet."""
        subscription = member.consumer.subscription
        project = project_of(subscription.name)
        for shard_id in [each for each in subscription.shard_ids if each not in member.shard_ids]:
            lanes = self._shards.setdefault(shard_id, {})
            lane = lanes.setdefault(project, Lane(shard_id, (project, shard_id)))
            watch = Watch(member, shard_id, lane, lane, level=subscription.levels.get(shard_id))
            lane.watches[subscription.subscription_id] = watch
            member.watches.append(watch)
        member.shard_ids = subscription.shard_ids

    def forget(self, member: Member) -> None:
        subscription = member.consumer.subscription
        project = project_of(subscription.name)
        for watch in member.watches:
            watch.lane.looks.pop(watch, None)
            lanes = self._shards[watch.shard_id]
            del lanes[project].watches[subscription.subscription_id]
            if not lanes[project].watches:
                del lanes[project]
            if not lanes:
                del self._shards[watch.shard_id]
                self._doubtful.pop(watch.shard_id, None)

    def doubtful(self, shard_id: int) -> Lane:
        lane = self._doubtful.get(shard_id)
        if lane is None:
            lane = self._doubtful[shard_id] = Lane(shard_id, (_IN_DOUBT, shard_id))
        return lane
