"""What a failed push says about the endpoint and about the message, and how long the message then waits."""

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

from broker.model.retry_policy import RetryPolicy

MIN_BACKOFF = 0.1  # seconds
PROBE_INTERVAL = 10.0  # seconds, the longest backoff of an endpoint: one that is back is noticed within this time

# A message that the endpoint rejects is retried after 100 ms to 60 s, the bounds of Google's push backoff;
# one that failed because of the endpoint is retried as often as the endpoint is probed.
REJECTED_BACKOFF = RetryPolicy(
    minimum_backoff=timedelta(seconds=MIN_BACKOFF), maximum_backoff=timedelta(seconds=60)
)
ENDPOINT_BACKOFF = RetryPolicy(
    minimum_backoff=timedelta(seconds=MIN_BACKOFF), maximum_backoff=timedelta(seconds=PROBE_INTERVAL)
)

_GONE = 410
# The endpoint works, and asks for fewer requests or more time.  Refused connections and missing answers mean the
# same.
_OVERLOADED = frozenset((408, 425, 429, 502, 503, 504))
_UNAUTHORIZED = frozenset((401, 403))


class Fault(Enum):
    """The fault of a failed push, and whether it counts for the endpoint or the message."""

    OVERLOADED = "overloaded"
    """The endpoint: it is unreachable, does not answer in time, or asks for fewer requests."""
    BROKEN = "broken"
    """The endpoint: it answers with an error of its own, whatever the number of requests."""
    REJECTED = "rejected"
    """The message: the endpoint works and rejects this one (a 4xx status without another meaning)."""
    GONE = "gone"
    """The message, as REJECTED; the endpoint, once it has said so of several messages (410)."""

    @property
    def is_of_endpoint(self) -> bool:
        """Whether the failure counts for the endpoint from the first message on."""
        return self in (Fault.OVERLOADED, Fault.BROKEN)


def fault_of(status: int | None) -> Fault:
    """Classifies a failed push by the status of its answer; None: there was no answer."""
    if status is None or status in _OVERLOADED:
        return Fault.OVERLOADED
    if status == _GONE:
        return Fault.GONE
    if 400 <= status < 500 and status not in _UNAUTHORIZED:
        return Fault.REJECTED
    return Fault.BROKEN


@dataclass(slots=True, frozen=True)
class MessagePause:
    """The pause of a message whose push failed.

    `backoff` is used if the subscription has no retry policy (None: the message waits for a probe of its endpoint).
    `seconds`, which the endpoint asked for, come on top in any case.
    """

    backoff: RetryPolicy | None
    seconds: float = 0.0

    @property
    def counts_for_message(self) -> bool:
        """Whether the failure counted for the message alone."""
        return self.backoff is REJECTED_BACKOFF

    def policy(self, of_subscription: RetryPolicy | None) -> RetryPolicy | None:
        """Returns the policy that delays the message, given the retry policy of its subscription."""
        return of_subscription or self.backoff


def pause_of_message(*, is_of_endpoint: bool, wanted: float) -> MessagePause:
    """Returns the pause of a failed message while the endpoint accepts others.

    `is_of_endpoint`: its failure counts for the endpoint, which then heeds the `wanted` seconds of a Retry-After.
    """
    return MessagePause(ENDPOINT_BACKOFF) if is_of_endpoint else MessagePause(REJECTED_BACKOFF, wanted)
