"""The outcomes of an endpoint's latest requests.  Pure: times are given, in seconds."""

from collections import deque
from enum import Enum

_MAX_COUNT = 64
_MAX_AGE = 60.0  # seconds


class Outcome(Enum):
    """How a request ended: well, or with a failure that counts for the endpoint or for the message."""

    SUCCEEDED = "succeeded"
    ENDPOINT_FAILED = "endpoint failed"
    MESSAGE_FAILED = "message failed"


class RecentOutcomes:
    """A sliding window over the last 64 outcomes, of the last minute at most."""

    __slots__ = ("_endpoint_failed", "_outcomes", "_succeeded")

    def __init__(self) -> None:
        self._outcomes: deque[tuple[float, Outcome]] = deque()
        self._succeeded = self._endpoint_failed = 0  # of those

    def note(self, now: float, outcome: Outcome) -> None:
        """Adds an outcome."""
        if len(self._outcomes) == _MAX_COUNT:
            self._drop()
        self._outcomes.append((now, outcome))
        self._succeeded += outcome is Outcome.SUCCEEDED
        self._endpoint_failed += outcome is Outcome.ENDPOINT_FAILED

    def clear(self) -> None:
        """Forgets all: what comes next says how the endpoint does."""
        self._outcomes.clear()
        self._succeeded = self._endpoint_failed = 0

    def failing_share(self, now: float) -> float:
        """The share of requests that the endpoint failed, 0 to 1; 0 if there was no outcome."""
        self._expire(now)
        return self._endpoint_failed / len(self._outcomes) if self._outcomes else 0.0

    def any_succeeded(self, now: float) -> bool:
        """Whether any request succeeded."""
        self._expire(now)
        return self._succeeded > 0

    def _expire(self, now: float) -> None:
        while self._outcomes and now - self._outcomes[0][0] > _MAX_AGE:
            self._drop()

    def _drop(self) -> None:
        _, outcome = self._outcomes.popleft()
        self._succeeded -= outcome is Outcome.SUCCEEDED
        self._endpoint_failed -= outcome is Outcome.ENDPOINT_FAILED
