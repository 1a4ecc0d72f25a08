"""The history of pushes: attempts by minute and status, and changes of circuit breakers."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from broker.model.errors import InvalidArgument
from broker.model.page import check_page_size, invalid_page_token, parse_page_token
from broker.model.push_state import BreakerState
from broker.model.timestamps import EVER, parse_timestamp

AttemptOutcome = Literal["DELIVERED", "FAILED"]

ATTEMPTS_KEPT = timedelta(hours=24)
MAX_BREAKER_CHANGES = 50  # of a subscription that are kept
TIMEOUT, UNREACHABLE, LATE, OTHER = "timeout", "unreachable", "late", "other"  # in place of a status
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PushAttempts:
    """Push requests of a subscription that ended in one minute with one status.

    `status`: that of HTTP, TIMEOUT, UNREACHABLE, LATE (accepted after the ack deadline, and counted as TIMEOUT by
    then), or OTHER (further statuses of failures).  `latency`: the sum of
    their latencies.  `last_message_id`: the message of the last one; of a digest its last.
    """

    subscription_id: int
    minute: datetime
    status: str
    delivered: bool
    requests: int
    latency: timedelta
    last_message_id: str

    @property
    def outcome(self) -> AttemptOutcome:
        return "DELIVERED" if self.delivered else "FAILED"


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerChange:
    """A change of the state of an endpoint's circuit breaker.

    `status` (None: there was no answer, or no request has failed) and `reason`: those of the last failure.
    `attempts`: the requests of the minute of the change, and of those before and after it.
    """

    subscription_id: int
    changed_at: datetime
    state: BreakerState
    consecutive_failures: int
    status: int | None
    reason: str
    attempts: list[PushAttempts] = field(default_factory=list)

    def takes(self, attempts: PushAttempts) -> bool:
        """Whether they are around the change."""
        return abs(attempts.minute - minute_of(self.changed_at)) <= _MINUTE


@dataclass(frozen=True, slots=True, kw_only=True)
class PushAttemptPage:
    """A page of rows, the newest first, after the one with this minute and status (None: from the newest on)."""

    size: int
    since: datetime = EVER
    outcome: AttemptOutcome | None = None
    after: tuple[datetime, str] | None = None


def minute_of(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)


def parse_push_attempt_page(size: int, token: str, *, outcome: str, since: str) -> PushAttemptPage:
    """Raises InvalidArgument."""
    if outcome not in ("", "DELIVERED", "FAILED"):
        raise InvalidArgument(f"outcome must be DELIVERED or FAILED (outcome={outcome[:100]}).")
    after = parse_page_token(token, datetime, str) if token else None
    if after is not None and "\0" in after[1]:
        raise invalid_page_token(token)
    return PushAttemptPage(
        size=check_page_size(size),
        since=parse_timestamp(since, "since") if since else EVER,
        outcome=outcome or None,  # type: ignore[arg-type]
        after=after,
    )
