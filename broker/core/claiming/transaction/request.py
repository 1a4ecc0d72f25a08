"""The request and the result of a claim (docs/claim.md)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from broker.core.claiming.transaction.ordered_run import Preferred, nobody
from broker.db.driver.hot_connection import Bound
from broker.db.driver.loop_steps import Turn, at_once
from broker.model.delivery import MAX_MESSAGES_PER_ATTEMPT, Delivery, DeliveryRequest
from broker.model.filter_changes import NewestFilter
from broker.model.journal import Journal
from broker.model.push_config import Digest
from broker.model.retry_policy import RetryPolicy

MAX_TARGETS = 1_000  # cursors that one claim locks
MAX_BYTES = 32_000_000  # of the bodies that one claim reads, each once; one larger message is still delivered alone


class ClaimTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription to claim messages for, and the `requests` that its consumer would fill with them.

    Messages published before `retained_since` are not delivered any more.  `filter_path` is a jsonpath (None: every
    message matches), perhaps with a `body_path` (core/filtering/jsonpath.py); if the filter was changed, at
    `filter_changed_at`, `newest` (None: the same) alone decides about messages published since.  If `ordered`, a
    response carries up to `max_run` messages of an ordering key, which goes to the request numbered
    `preferred(key)` if there is one and it has room.  Redeliveries are only looked up if `includes_due`;
    `wants_next`: return when the next one is due even if every request gets messages.  With a `digest` fresh
    messages are only taken if its `max_messages` or `max_bytes` are available, or the oldest was published its
    `max_delay` ago; redeliveries do not wait for it.  If it `leaves_just_retried`, such messages
    (core/claiming/transaction/allocation.py) are left for a later claim, because other shards may have messages
    that go before them. With a `journal` deliveries are recorded.  Expired messages are passed, or, if it
    `gives_up_expired`, left to the dead-letter forwarder.
    """

    subscription_id: int
    requests: Sequence[DeliveryRequest]
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
    includes_due: bool = True
    wants_next: bool = False

    @property
    def max_messages(self) -> int:
        requests = self.requests
        return requests[0].max_messages if len(requests) == 1 else sum(request.max_messages for request in requests)

    @property
    def max_bytes(self) -> int:
        requests = self.requests
        return requests[0].max_bytes if len(requests) == 1 else sum(request.max_bytes for request in requests)

    def paths_from(self, publish_time: datetime) -> tuple[str | None, str | None]:
        """The filter path and body path that decide about messages published at this time or later."""
        newest = self.newest
        if newest is not None and publish_time >= newest.since:
            return newest.filter_path, newest.body_path
        return self.filter_path, self.body_path

    @property
    def appetite(self) -> tuple[Sequence[DeliveryRequest], Digest | None]:
        """Targets that have the same place and this in common get the same messages."""
        return tuple(self.requests), self.digest


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """A claim in one shard for up to MAX_TARGETS subscriptions, each once, served in this order.

    A claim for one subscription waits for its cursor, unless there are others to go on with (`skip_locked`); a
    claim for several skips the cursors that another transaction has locked.  `now` is the database's time, and so
    are later times that `clock()` returns (None: still `now`); `jitter` (0 to 0.1) lengthens retry delays; `turn`
    is awaited before long steps.
    """

    shard_id: int
    targets: Sequence[ClaimTarget]
    now: datetime
    jitter: float = 0.0
    clock: Callable[[], datetime] | None = None
    skip_locked: bool = False
    turn: Turn = at_once

    def __post_init__(self) -> None:
        if len(self.targets) > MAX_TARGETS:
            raise ValueError(f"a claim for {len(self.targets)} subscriptions; the maximum is {MAX_TARGETS}")

    def handed_out_at(self) -> datetime:
        """The time that ack deadlines count from.

        Call it once everything is locked and read, which may have taken seconds.
        """
        return self.now if self.clock is None else max(self.now, self.clock())

    def where(self, subscription_ids: Sequence[int]) -> dict[str, Any]:
        """The parameters that most statements of a claim begin with."""
        return {"shard_id": self.shard_id, "subscription_ids": subscription_ids}


class Query(msgspec.Struct, frozen=True):
    """A statement with its parameters, and the function that takes its rows.

    The steps of a claim return queries, and claim.py alone sends them.  `messages`: how many the rows may be of, if
    `take` handles them one by one.
    """

    bound: Bound
    take: Callable[[list[Any]], None] | None = None
    messages: int = 0


@dataclass(frozen=True, slots=True)
class Gone:
    """The subscription has no cursor in this shard that could move: it was deleted, detached, or paused; or its
    filter was changed after it was read for this claim.
    """


@dataclass(frozen=True, slots=True)
class Locked:
    """The claim has to be repeated in a moment: another transaction has locked the cursor."""


@dataclass(frozen=True, slots=True)
class More:
    """The claim can be repeated at once: there are more messages, fresh or due, than were delivered."""


class Quiet(msgspec.Struct, frozen=True):
    """The claim has left nothing to claim until a message is published or nacked, or until a time.

    `until` None: no time is known.  Messages that this claim has delivered do not count.
    """

    until: datetime | None = None


Rest = Gone | Locked | More | Quiet


class Claimed(msgspec.Struct, frozen=True):
    """The result for one target: the deliveries for each request, in their order, and what is left.

    `expired`: messages whose ack deadline had passed; `past`: messages that were passed, or removed from their
    rows, because they have expired.  `only_just_retried`: nothing is left in this shard but messages that the
    target leaves for that reason.
    """

    deliveries: Sequence[Sequence[Delivery]]
    rest: Rest
    expired: int = 0
    past: int = 0
    only_just_retried: bool = False
