"""The hooks of claims, by which features order shards and change the claimed messages of a response."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from broker.core.claiming.consumer import Answer
from broker.core.claiming.transaction.request import Rest
from broker.model.priorities import Priorities
from broker.model.subscription import Subscription

Rank = tuple[float, int]


class ShardOrder(Protocol):
    """The order in which shards with levels of urgency are claimed from, for one subscription.

    Less urgent shards give way to those of a lower rank, unless their messages may have waited too long.
    `priorities` are those that the topic has now.
    """

    def rank(self, level: int, priorities: Priorities | None) -> Rank:
        """Return the rank of a level; the lowest goes first."""
        ...

    def took(self, level: int, count: int, rest: Rest, priorities: Priorities | None) -> None:
        """Take note of a claim that has brought `count` messages of a level, and left this rest."""
        ...

    def old_at(self, shard_id: int, level: int, priorities: Priorities | None, now: datetime) -> datetime | None:
        """Return when the messages of a shard may have waited too long; None: never, as far as is known.

        From then on the scheduler calls `ShardOrders.read_ages` before the shard gives way.
        """
        ...

    def waits(self, shard_id: int, level: int, since: datetime, age: timedelta, now: datetime) -> None:
        """Take note that no message of a shard has waited since before `since`; after `age` they have too long."""
        ...


class ShardOrders(Protocol):
    """The orders of the subscriptions that a scheduler claims for."""

    def of(self, subscription: Subscription) -> ShardOrder:
        """Return the order of the shards of a subscription, some of which have levels."""
        ...

    async def read_ages(
        self, shard_id: int, waiting: Sequence[tuple[Subscription, ShardOrder]], now: datetime
    ) -> None:
        """Read since when the messages of a shard have waited, and tell the order of each subscription."""
        ...


class AnswerHook(Protocol):
    """Changes the messages of a claim for a subscription that has transforms."""

    async def transformed(self, subscription: Subscription, answer: Answer) -> Answer:
        """Return the answer that the consumer gets."""
        ...
