"""The outstanding requests of an endpoint, and which of them are stuck.  Pure: times are parameters, in seconds."""

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import islice

# A request is stuck if later ones have succeeded while it has taken this long, and this many times the mean
# latency.
_STUCK_SECONDS, _STUCK_LATENCIES = 0.25, 8
_CHECK_SECONDS = 0.02  # between two checks for stuck requests, while there is capacity without them
_MAX_STUCK = 1_000


@dataclass(slots=True, eq=False)
class Attempt:
    """A request that started: it takes room until it has succeeded, failed or was abandoned.

    `number` counts the requests of the endpoint.  `message` identifies what it carries, `is_retry` says that this
    has failed before.
    """

    number: int
    began: float
    message: Hashable
    is_retry: bool
    ended: bool = False
    is_stuck: bool = False


class RunningRequests:
    """The outstanding requests of an endpoint, but for those that are stuck: these do not count against its window.

    So messages on which an endpoint hangs do not hold up the others, which it answers.
    """

    __slots__ = ("check_at", "last_success", "running", "stuck")

    def __init__(self) -> None:
        self.running: dict[Attempt, None] = {}  # except stuck ones; oldest first
        self.stuck = 0
        self.check_at = 0.0  # when to call `set_aside_stuck` next
        self.last_success = 0  # the highest number of a request that has succeeded

    def remove(self, attempt: Attempt) -> None:
        """Removes a request that has ended."""
        assert not attempt.ended, "an attempt ends once"
        attempt.ended = True
        if attempt.is_stuck:
            self.stuck -= 1
        else:
            del self.running[attempt]

    def stuck_at(self, index: int, latency: float) -> float | None:
        """Returns when the request at this index, counted from the oldest, will be stuck if it is not answered.

        `latency`: the latency of successes.  None: not before a later one has succeeded, or too many are stuck
        already.
        """
        attempt = next(islice(self.running, index, None), None)
        if attempt is None or self.stuck + index >= _MAX_STUCK or attempt.number >= self.last_success:
            return None
        return attempt.began + _longest(latency)

    def was_overtaken(self, attempt: Attempt, now: float, latency: float) -> bool:
        """Whether a request took so long, while later ones succeeded, that its end says nothing of the others."""
        return attempt.number < self.last_success and now - attempt.began >= _longest(latency)

    def set_aside_stuck(self, now: float, latency: float) -> None:
        """Counts those as stuck that are by now."""
        self.check_at = now + _CHECK_SECONDS
        while (stuck_at := self.stuck_at(0, latency)) is not None and stuck_at <= now:
            oldest = next(iter(self.running))
            del self.running[oldest]
            oldest.is_stuck = True
            self.stuck += 1


def _longest(latency: float) -> float:
    """Seconds that a request may take before it is stuck."""
    return max(_STUCK_SECONDS, _STUCK_LATENCIES * latency)
