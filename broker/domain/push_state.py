"""How deliveries to an endpoint go: what the broker knows, and shows, of each push subscription (C6)."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

BreakerState = Literal["closed", "open", "half_open"]

MAX_KEPT_FAILURES = 100  # of a subscription
MAX_EXCERPT = 1_000  # characters of a response


@dataclass(frozen=True, slots=True, kw_only=True)
class PushState:
    """The state of a push subscription's endpoint, as the process that delivers to it last wrote it down.

    `paused_reason` is "" unless pushing is paused (the endpoint answered 410) until somebody resumes it.
    `window` is how many requests may be outstanding.  `retry_at`: nothing is sent before (None: no such time).
    """

    subscription_id: int
    breaker: BreakerState = "closed"
    changed_at: datetime
    consecutive_failures: int = 0
    window: int = 0
    outstanding_requests: int = 0
    retry_at: datetime | None = None
    paused_reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushFailure:
    """One failed attempt to deliver.  `status` is None if there was no answer; `detail` is the error, or the
    beginning of the response (at most MAX_EXCERPT characters).
    """

    subscription_id: int
    failed_at: datetime
    message_id: str
    delivery_attempt: int
    endpoint: str
    status: int | None
    latency: timedelta
    detail: str
