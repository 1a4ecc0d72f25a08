"""What a claim for push is asked for, and what became of it (A8, design section 5)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from broker.domain.delivery import MAX_MESSAGES_PER_ATTEMPT, Delivery, Demand
from broker.domain.push_config import Digest
from broker.domain.retry_policy import RetryPolicy

MAX_DEMANDS = 1_000  # cursors that one claim locks
MAX_BYTES = 32_000_000  # of the bodies that one claim reads, each message once; one larger message still goes alone


@dataclass(frozen=True, slots=True, kw_only=True)
class PushDemand:
    """What one subscription's senders would take now; it has neither message ordering nor exactly-once delivery.

    `max_messages` is at least 1 (what is beyond 1,000 waits for another claim).  Messages published before
    `retained_since` are not delivered any more; `filter_path` is a jsonpath (None: every message matches).
    Redeliveries are looked for only if `look_for_due`.  With a `digest` nothing fresh is taken unless its
    `max_messages` or `max_bytes` wait, or the oldest that waits was published its `max_delay` ago; redeliveries do
    not wait for it.
    """

    subscription_id: int
    max_messages: int
    max_bytes: int
    ack_deadline: timedelta
    retained_since: datetime
    filter_path: str | None
    retry_policy: RetryPolicy | None
    max_attempts: int | None
    look_for_due: bool
    digest: Digest | None

    @property
    def appetite(self) -> tuple[int, int, Digest | None]:
        """What those that stand at the same place and have this in common get alike."""
        return self.max_messages, self.max_bytes, self.digest

    @property
    def limits(self) -> Demand:
        return Demand(
            max_messages=min(self.max_messages, MAX_MESSAGES_PER_ATTEMPT), max_bytes=min(self.max_bytes, MAX_BYTES)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PushClaimRequest:
    """One claim in one shard for up to MAX_DEMANDS subscriptions, each once, served in this order.

    `now` is the database's time, and so is what `clock()` says later (None: still `now`); `jitter` (0 to 0.1)
    lengthens retry delays.
    """

    shard_id: int
    now: datetime
    jitter: float
    demands: Sequence[PushDemand]
    clock: Callable[[], datetime] | None = None

    def handed_out_at(self) -> datetime:
        """As ClaimRequest's."""
        return self.now if self.clock is None else max(self.now, self.clock())

    def __post_init__(self) -> None:
        if len(self.demands) > MAX_DEMANDS:
            raise ValueError(f"a claim for {len(self.demands)} subscriptions; at most {MAX_DEMANDS} can be")


@dataclass(frozen=True, slots=True)
class PushClaimed:
    """What became of one demand.

    `deliveries`: one each attempt number (more if its messages lie far apart in the log), messages in log order.
    `more`: there may be more to claim at once, fresh or due, than was handed out.  `next_look_at`: when something
    that was left behind falls due: a redelivery (known only with `look_for_due`; those handed out here do not
    count) or a digest's delay.  `outcome`: "locked" if another transaction holds the cursor, "gone" if there is
    none.
    """

    deliveries: Sequence[Delivery]
    more: bool = False
    next_look_at: datetime | None = None
    outcome: Literal["claimed", "locked", "gone"] = "claimed"
