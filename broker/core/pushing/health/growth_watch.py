"""Decides whether a larger window increases throughput.  Pure: times are parameters."""

_PERIOD = 0.05  # seconds, at least, over which successes are counted; and at least a round trip
_WORTH = 1.1  # a doubled window must raise the successes a second by this factor
_HOLD = 2.0  # seconds after which a larger window is tried again


class GrowthWatch:
    """Limits a window to `ceiling`: at most twice what it was a period ago, and no larger than what was of use.

    Requests beyond what an endpoint, the network or this process can work on only wait, somewhere.  If twice as
    many bring no more successes, the window goes back; now and then it is tried again.
    """

    __slots__ = ("_began", "_best_rate", "_best_window", "_held_until", "_successes", "ceiling")

    def __init__(self, window: float, now: float) -> None:
        self._best_rate = 0.0  # successes a second
        self._best_window = window
        self._held_until: float | None = None
        self._begin(window, now)

    def succeeded(self, now: float, *, window: float, latency: float) -> None:
        """Records a success.  `latency`: the mean seconds of a request."""
        self._successes += 1
        if now - self._began >= max(_PERIOD, latency):
            self._end(now, window)

    def _begin(self, window: float, now: float) -> None:
        self._began = now
        self._successes = 0
        self.ceiling = self._best_window if self._held_until is not None else max(2 * window, 2.0)

    def _end(self, now: float, window: float) -> None:
        rate = self._successes / (now - self._began)
        if self._held_until is not None:
            if now >= self._held_until:
                self._held_until = None
                self._best_rate, self._best_window = rate, window
        elif rate > _WORTH * self._best_rate:
            self._best_rate, self._best_window = rate, window
        elif window >= 2 * self._best_window:
            self._held_until = now + _HOLD
        self._begin(window, now)
