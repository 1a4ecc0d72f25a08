"""What a claim is asked for, and what it answers (docs/claim.md)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from broker.domain.delivery import MAX_MESSAGES_PER_ATTEMPT, Delivery, Demand
from broker.domain.filter_changes import NewestFilter
from broker.domain.journal import Journal
from broker.domain.ordered_run import Preferred, nobody
from broker.domain.push_config import Digest
from broker.domain.retry_policy import RetryPolicy
from broker.store.driver.loop_steps import Turn, at_once

MAX_CLAIMANTS = 1_000  # cursors that one claim locks
MAX_BYTES = 32_000_000  # of the bodies that one claim reads, each once; one larger message still goes alone


class Claimant(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription that messages are claimed for, and what those would take who wait for them (`demands`).

    Messages published before `retained_since` are not delivered any more.  `filter_path` is a jsonpath (None:
    every message matches), perhaps with a `body_path` (filtering/jsonpath.py); if the filter was changed, at
    `filter_changed_at`, `newest` (None: the same) is what decides alone about messages published since.  If
    `ordered`, a response carries up to `max_run` messages of an ordering key, which goes to the demand numbered
    `preferred(key)` if there is one and it has room.  Redeliveries are looked for only if `looks_for_due`;
    `wants_next`: whoever asks wants to know when the next falls due even if he gets something.  With a `digest`
    nothing fresh is taken unless its `max_messages` or `max_bytes` wait, or the oldest that waits was published
    its `max_delay` ago; redeliveries do not wait for it.  If it `leaves_just_retried`, messages that are
    (domain/due_share.py) stay for a later claim, because other shards may have messages that go before them.
    With a `journal` hand-outs are written down.  What is past its time is passed, or, if it `gives_up_expired`,
    left to the dead-letter forwarder.
    """

    subscription_id: int
    demands: Sequence[Demand]
    ack_deadline: timedelta
    retained_since: datetime
    retry_policy: RetryPolicy | None = None
    filter_path: str | None = None
    body_path: str | None = None
    newest: NewestFilter | None = None
    filter_changed_at: datetime | None = None
    max_attempts: int | None = None
    gives_up_expired: bool = False
    exactly_once: bool = False
    ordered: bool = False
    max_run: int = MAX_MESSAGES_PER_ATTEMPT
    preferred: Preferred = nobody
    digest: Digest | None = None
    leaves_just_retried: bool = False
    journal: Journal | None = None
    looks_for_due: bool = True
    wants_next: bool = False

    @property
    def max_messages(self) -> int:
        demands = self.demands
        return demands[0].max_messages if len(demands) == 1 else sum(demand.max_messages for demand in demands)

    @property
    def max_bytes(self) -> int:
        demands = self.demands
        return demands[0].max_bytes if len(demands) == 1 else sum(demand.max_bytes for demand in demands)

    def paths_from(self, publish_time: datetime) -> tuple[str | None, str | None]:
        """The filter path and body path that decide about messages published at this time or later."""
        newest = self.newest
        if newest is not None and publish_time >= newest.since:
            return newest.filter_path, newest.body_path
        return self.filter_path, self.body_path

    def has_filter_of(self, changed_at: datetime | None) -> bool:
        """Whether the claimant knows the filter that a cursor says was set at this time (None: it does not say)."""
        return changed_at is None or changed_at == self.filter_changed_at

    @property
    def appetite(self) -> tuple[Sequence[Demand], Digest | None]:
        """What those that stand at the same place and have this in common get alike."""
        return tuple(self.demands), self.digest


def ack_deadlines(claimants: Sequence[Claimant], at: datetime) -> list[datetime]:
    """Of what each gets at that time; the same object for the same deadline, which is then encoded once."""
    known = {ack_deadline: at + ack_deadline for ack_deadline in {each.ack_deadline for each in claimants}}
    return [known[each.ack_deadline] for each in claimants]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """One claim in one shard for up to MAX_CLAIMANTS subscriptions, each once, served in this order.

    A claim for one subscription waits for its cursor, unless there are others to go on with (`skip_locked`); one
    for several leaves those that somebody else holds alone.
    `now` is the database's time, and so is what `clock()` says later (None: still `now`); `jitter` (0 to 0.1)
    lengthens retry delays; `turn` is waited for before long steps.
    """

    shard_id: int
    claimants: Sequence[Claimant]
    now: datetime
    jitter: float = 0.0
    clock: Callable[[], datetime] | None = None
    skip_locked: bool = False
    turn: Turn = at_once

    def __post_init__(self) -> None:
        if len(self.claimants) > MAX_CLAIMANTS:
            raise ValueError(f"a claim for {len(self.claimants)} subscriptions; at most {MAX_CLAIMANTS} can be")

    @property
    def waits(self) -> bool:
        """For the cursor of its one subscription."""
        return len(self.claimants) == 1 and not self.skip_locked

    def handed_out_at(self) -> datetime:
        """What ack deadlines count from.  To be asked once all is locked and read, which may have taken seconds."""
        return self.now if self.clock is None else max(self.now, self.clock())

    def where(self, subscription_ids: Sequence[int]) -> dict[str, Any]:
        """The parameters that most statements of a claim begin with."""
        return {"shard_id": self.shard_id, "subscription_ids": subscription_ids}


@dataclass(frozen=True, slots=True)
class Gone:
    """The subscription has no cursor in this shard that could move: it was deleted, detached, or paused; or its
    filter was changed since the claimant was made.
    """


@dataclass(frozen=True, slots=True)
class Locked:
    """Somebody else holds the cursor: ask again in a moment."""


@dataclass(frozen=True, slots=True)
class More:
    """There may be more to claim at once, fresh or due, than was handed out."""


class Quiet(msgspec.Struct, frozen=True):
    """Nothing more is to be had before something is published, nacked or `until` comes (None: nothing is known of).

    What this claim has handed out does not count.
    """

    until: datetime | None = None


Rest = Gone | Locked | More | Quiet


class Claimed(msgspec.Struct, frozen=True):
    """What became of one claimant: the deliveries for each demand, in their order, and what is left.

    `expired`: messages that were taken up again because their ack deadline had passed; `past`: those that it has
    passed, or taken out of their rows, because their time was over.  `only_just_retried`: nothing is left here but
    messages that the claimant leaves for that reason.
    """

    deliveries: Sequence[Sequence[Delivery]]
    rest: Rest
    expired: int = 0
    past: int = 0
    only_just_retried: bool = False
