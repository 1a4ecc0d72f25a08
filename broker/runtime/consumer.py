"""Somebody for whom messages of one subscription are claimed: its pulls, or its endpoint (docs/claim.md)."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol, Required, TypedDict, Unpack

import msgspec

from broker.domain.delivery import DeliveryRequest
from broker.domain.ordered_run import Preferred
from broker.domain.push_config import Digest
from broker.domain.subscription import Subscription
from broker.store.claim.request import Claimed, ClaimTarget


class Answer(msgspec.Struct, frozen=True):
    """What a claim in a shard brought.  `now` is the database's time when it began, `begun_at` the event loop's.
    `transformed`: it brought messages, which some may have been taken from since.
    """

    shard_id: int
    target: ClaimTarget
    claimed: Claimed
    now: datetime
    begun_at: float
    transformed: bool = False

    @property
    def count(self) -> int:
        """Of its messages."""
        return sum(len(delivery.messages) for deliveries in self.claimed.deliveries for delivery in deliveries)


class Terms(TypedDict, total=False):
    """What a consumer says of itself: the fields of ClaimTarget that its subscription does not decide."""

    requests: Required[Sequence[DeliveryRequest]]
    ack_deadline: Required[timedelta]
    exactly_once: bool
    max_run: int
    preferred: Preferred
    digest: Digest | None
    looks_for_due: bool
    wants_next: bool


def claim_target(subscription: Subscription, now: datetime, **terms: Unpack[Terms]) -> ClaimTarget:
    """The target that a consumer of the subscription is now; `now` is the database's time."""
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
    """What the scheduler asks and tells.  Each `begin` that wants something is followed by one `accept` or `fail`.

    Several claims for one consumer may be under way, in different shards, if it wants so.
    """

    @property
    def subscription(self) -> Subscription:
        """As it is known now; its topic may have got more shards than it had."""
        ...

    @property
    def in_doubt(self) -> bool:
        """Whether it is not known to take soon what it gets.  All that is in doubt in a shard is claimed for
        together, whatever its project, and has turns like one project: project names cost nothing.
        """
        ...

    def wants(self) -> bool:
        """Whether it would take messages now.  When that becomes true, `ClaimScheduler.ready` is to be called."""
        ...

    def begin(self, now: datetime, *, due: bool) -> ClaimTarget | None:
        """What it wants now, or None if that is nothing; `due`: redeliveries may be due.  What it raises comes back
        to it by `fail`.
        """
        ...

    def accept(self, answer: Answer) -> None:
        """This is what it gets, if anything, and why there is no more."""
        ...

    def fail(self, target: ClaimTarget | None, error: BaseException) -> None:
        """Claiming has failed, or (None) it could not begin.  It is tried again soon, if it wants."""
        ...

    def wakes_at(self, *, held_up: bool) -> float | None:
        """When, by the event loop's time, `woken` is to be called though nothing has happened; None: never.

        `held_up`: there may be messages that it did not want.
        """
        ...

    def woken(self) -> None:
        """The time has come."""
        ...
