"""Orders the shards of a consumer for claims, if its topic has levels of priority (docs/decisions/0052)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from broker.core.claiming.hooks import Rank, ShardOrder
from broker.core.claiming.transaction.request import Quiet, Rest
from broker.db.driver.database import Database
from broker.features.priorities.waiting import read_waiting_since
from broker.model.priorities import MAX_LEVELS, Priorities
from broker.model.subscription import Subscription

_MAX_SUBSCRIPTIONS = 10_000  # that are remembered


@dataclass(slots=True)
class Levels:
    """The ShardOrder of a subscription.

    `shares`: what each level has had, by its weight.  `empty`: the levels that had nothing more after their last
    claim.  `old`: levels of which something has waited too long, which take turns with those before them; `turns`:
    when each had its last one.  `waits_since`: as far as is known nothing in a shard has waited for longer.
    """

    shares: dict[int, float] = field(default_factory=dict)
    empty: set[int] = field(default_factory=set)
    old: set[int] = field(default_factory=set)
    turns: dict[int, int] = field(default_factory=dict)
    waits_since: dict[int, datetime] = field(default_factory=dict)

    def rank(self, level: int, priorities: Priorities | None) -> Rank:
        """Returns the rank of a level; the least goes first.

        The noted ages, and weights, count while the topic has them.
        """
        if priorities is None or priorities.age is None or not self.old:
            weighed = priorities is not None and priorities.weights
            return (self.shares.get(level, 0.0) if weighed else 0.0), level
        if level in self.old:
            return self.turns.get(level, 0), level
        # What is not old passes nothing that is more urgent, whoever else takes turns.
        return max((turn for other, turn in self.turns.items() if other <= level), default=0), level

    def took(self, level: int, count: int, rest: Rest, priorities: Priorities | None) -> None:
        """Records the messages of a level that a claim has brought, and whether there are more."""
        self.turns[level] = max(self.turns.values(), default=0) + 1
        self.old.discard(level)  # until it has been asked anew
        if priorities is None or not priorities.weights:
            self.shares.clear()
            return
        share = self.shares.get(level, 0.0)
        if count and level in self.empty:  # what it has not had meanwhile it is not owed
            there = [had for other, had in self.shares.items() if other != level and other not in self.empty]
            share = max(share, min(there, default=share))
        self.shares[level] = share + count / priorities.weights[min(level, priorities.least)]
        if isinstance(rest, Quiet):
            self.empty.add(level)
        else:
            self.empty.discard(level)

    def old_at(self, shard_id: int, level: int, priorities: Priorities | None, now: datetime) -> datetime | None:
        """Returns when messages of the shard may have waited too long; now if no time is known.

        None: they are known to have, or the topic has no age.
        """
        if priorities is None or priorities.age is None:
            return None
        since = self.waits_since.get(shard_id)
        return None if level in self.old else now if since is None else since + priorities.age

    def waits(self, shard_id: int, level: int, since: datetime, age: timedelta, now: datetime) -> None:
        """Records since when messages of the shard wait."""
        self.waits_since[shard_id] = since
        if since + age <= now:
            self.old.add(level)


class AllLevels:
    """The ShardOrders of a scheduler, which are also remembered while nobody pulls."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._levels: dict[int, Levels] = {}

    def of(self, subscription: Subscription) -> Levels:
        if len(self._levels) >= _MAX_SUBSCRIPTIONS:
            self._levels.clear()
        return self._levels.setdefault(subscription.subscription_id, Levels())

    async def read_ages(
        self, shard_id: int, waiting: Sequence[tuple[Subscription, ShardOrder]], now: datetime
    ) -> None:
        """Read since when the messages of a shard have waited, and tell the levels of each subscription."""
        retained_since: Mapping[int, datetime] = {each.subscription_id: now - each.retention for each, _ in waiting}
        async with self._database.at_any_node(shard_id) as connection:
            since = await read_waiting_since(connection, shard_id=shard_id, retained_since=retained_since, now=now)
        for subscription, levels in waiting:
            known = subscription.priorities
            if known is not None and known.age is not None:
                level = subscription.levels.get(shard_id, MAX_LEVELS)
                levels.waits(shard_id, level, since.get(subscription.subscription_id, now), known.age, now)
