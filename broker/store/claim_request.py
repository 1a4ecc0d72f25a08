"""What a claim is asked for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from broker.domain.delivery import MAX_MESSAGES_PER_ATTEMPT, Demand
from broker.domain.retry_policy import RetryPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """One claim on one shard of a subscription, on behalf of several pulls (`demands`).

    `now` is the database's time, and so is what `clock()` says later (None: still `now`); messages published before
    `retained_since` are not delivered any more; `jitter` (0 to 0.1) lengthens retry delays.
    `filter_path` is a jsonpath (None: every message matches).
    If `ordered`, a response carries up to `max_run` messages of an ordering key, which goes to the demand at the
    place `preferred(key)` if there is one and it has room.
    """

    shard_id: int
    subscription_id: int
    demands: Sequence[Demand]
    ack_deadline: timedelta
    retained_since: datetime
    now: datetime
    retry_policy: RetryPolicy | None = None
    jitter: float = 0.0
    filter_path: str | None = None
    max_attempts: int | None = None
    exactly_once: bool = False
    ordered: bool = False
    max_run: int = MAX_MESSAGES_PER_ATTEMPT
    preferred: Callable[[str], int | None] = lambda key: None
    clock: Callable[[], datetime] | None = None

    def handed_out_at(self) -> datetime:
        """What ack deadlines count from.  To be asked once all is locked and read, which may have taken seconds."""
        return self.now if self.clock is None else max(self.now, self.clock())

    @property
    def where(self) -> dict[str, Any]:
        return {"shard_id": self.shard_id, "subscription_id": self.subscription_id}

    @property
    def max_messages(self) -> int:
        return sum(demand.max_messages for demand in self.demands)

    @property
    def max_bytes(self) -> int:
        return sum(demand.max_bytes for demand in self.demands)
