"""The outcomes of an endpoint's latest requests.  Pure: times are parameters, in seconds."""

from collections import deque
from enum import Enum

_MAX_COUNT = 64
_MAX_AGE = 60.0  # seconds


class Outcome(Enum):
    """The outcome of a request: a success, or a failure that counts for the endpoint or for the message."""

    SUCCEEDED = "succeeded"
    ENDPOINT_FAILED = "endpoint failed"
    MESSAGE_FAILED = "message failed"


class RecentOutcomes:
    """A sliding window over the last 64 outcomes, of the last minute at most.

    Every request adds an outcome and only failures read them: so adding is cheap, and reading counts them all.
    """

    __slots__ = ("_outcomes",)

    def __init__(self) -> None:
        self._outcomes: deque[tuple[float, Outcome]] = deque(maxlen=_MAX_COUNT)

    def note(self, now: float, outcome: Outcome) -> None:
        """Adds an outcome."""
        self._outcomes.append((now, outcome))

    def clear(self) -> None:
        """Forgets all: what comes next says how the endpoint does."""
        self._outcomes.clear()

    def failing_share(self, now: float) -> float:
        """The share of requests that the endpoint failed, 0 to 1; 0 if there was no outcome."""
        latest = self._latest(now)
        return latest.count(Outcome.ENDPOINT_FAILED) / len(latest) if latest else 0.0

    def any_succeeded(self, now: float) -> bool:
        """Whether any request succeeded."""
        return Outcome.SUCCEEDED in self._latest(now)

    def _latest(self, now: float) -> list[Outcome]:
        return [outcome for noted_at, outcome in self._outcomes if now - noted_at <= _MAX_AGE]
