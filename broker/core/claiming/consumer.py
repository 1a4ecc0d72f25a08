"""Consumers, for which the scheduler claims: the pulls of a subscription, or its endpoint (docs/claim.md)."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol, Required, TypedDict, Unpack

import msgspec

from broker.core.claiming.transaction.ordered_run import Preferred
from broker.core.claiming.transaction.request import Claimed, ClaimTarget
from broker.model.delivery import DeliveryRequest
from broker.model.push_config import Digest
from broker.model.subscription import Subscription


class Answer(msgspec.Struct, frozen=True):
    """The result of a claim in a shard for one consumer.

    `now` is the database's time when it began, `begun_at` the event loop's.  `transformed`: it handed out messages,
    some of which a transform may have removed since.
    """

    shard_id: int
    target: ClaimTarget
    claimed: Claimed
    now: datetime
    begun_at: float
    transformed: bool = False

    @property
    def count(self) -> int:
        """The number of messages."""
        return sum(len(delivery.messages) for deliveries in self.claimed.deliveries for delivery in deliveries)


class Terms(TypedDict, total=False):
    """The fields of a ClaimTarget that the consumer decides rather than its subscription."""

    requests: Required[Sequence[DeliveryRequest]]
    ack_deadline: Required[timedelta]
    exactly_once: bool
    max_run: int
    preferred: Preferred
    digest: Digest | None
    includes_due: bool
    wants_next: bool


def claim_target(subscription: Subscription, now: datetime, **terms: Unpack[Terms]) -> ClaimTarget:
    """The target for a consumer of the subscription; `now` is the database's time."""
    return ClaimTarget(
        subscription_id=subscription.subscription_id,
        retained_since=now - subscription.retention,
        retry_policy=subscription.retry_policy,
        filter_path=subscription.filter_path,
        body_path=subscription.body_path,
        newest=subscription.newest_filter,
        filter_changed_at=subscription.filter_changed_at,
        max_attempts=subscription.max_delivery_attempts,
        gives_up_expired=subscription.gives_up_expired,
        ordered=subscription.enable_message_ordering,
        journal=subscription.journal,
        **terms,
    )


class Consumer(Protocol):
    """The calls of the scheduler.  Each `begin` that returns a target is followed by one `accept` or `fail`.

    Several claims for one consumer may be under way, in different shards, if it wants so.
    """

    @property
    def subscription(self) -> Subscription:
        """The subscription as it was last read; its topic may have got more shards since."""
        ...

    @property
    def in_doubt(self) -> bool:
        """Whether it may not take soon what it gets.

        All subscriptions in doubt of a shard are claimed for together, whatever their projects, and have turns like
        one project: otherwise a tenant could get more turns by using more project names.
        """
        ...

    def wants(self) -> bool:
        """Whether it would take messages now.  Call `ClaimScheduler.ready` when that becomes true."""
        ...

    def begin(self, now: datetime, *, due: bool) -> ClaimTarget | None:
        """The target of a claim now, or None if it wants nothing; `due`: redeliveries may be due.

        An exception is passed to its `fail`.
        """
        ...

    def accept(self, answer: Answer) -> None:
        """Take the messages of a claim, if any, and learn why there are no more."""
        ...

    def fail(self, target: ClaimTarget | None, error: BaseException) -> None:
        """Learn that a claim has failed, or (None) could not begin.  It is tried again soon, if it wants."""
        ...

    def wakes_at(self, *, held_up: bool) -> float | None:
        """The event loop's time at which to call `woken` though nothing has happened; None: never.

        `held_up`: there may be messages that it did not want.
        """
        ...

    def woken(self) -> None:
        """Learn that this time has come."""
        ...
