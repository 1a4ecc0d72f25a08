"""The outcomes of an endpoint's latest requests.  Pure: times are given, in seconds."""

from collections import deque

_MAX_COUNT = 64
_MAX_AGE = 60.0  # seconds


class RecentOutcomes:
    """A sliding window over the last 64 outcomes, of the last minute at most."""

    __slots__ = ("_failures", "_outcomes")

    def __init__(self) -> None:
        self._outcomes: deque[tuple[float, bool]] = deque()  # when, and whether it was a failure
        self._failures = 0

    def note(self, now: float, *, failed: bool) -> None:
        """Adds an outcome."""
        if len(self._outcomes) == _MAX_COUNT:
            self._drop()
        self._outcomes.append((now, failed))
        self._failures += failed

    def clear(self) -> None:
        """Forgets all: what comes next says how the endpoint does."""
        self._outcomes.clear()
        self._failures = 0

    def failing_share(self, now: float) -> float:
        """The share of failures, 0 to 1; 0 if there was no outcome."""
        self._expire(now)
        return self._failures / len(self._outcomes) if self._outcomes else 0.0

    def any_succeeded(self, now: float) -> bool:
        """Whether any request succeeded."""
        self._expire(now)
        return self._failures < len(self._outcomes)

    def _expire(self, now: float) -> None:
        while self._outcomes and now - self._outcomes[0][0] > _MAX_AGE:
            self._drop()

    def _drop(self) -> None:
        _, failed = self._outcomes.popleft()
        self._failures -= failed
