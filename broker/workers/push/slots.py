"""Slots for requests: who gets one of the so many that a process may have open (M1).

They are shared by project, then by subscription (runtime/fair_stock.py).  Two rules are push's own:

* Endpoints that do not do well, or of which that is not known yet, share a part of their project's, and so leave
  room for those that do: a hundred new subscriptions of a host that hangs do not stop their neighbours.
* Once half of all slots are taken, an endpoint that takes seconds for an answer may have fewer, by as many times as
  it takes seconds, down to one.  While there is room it may use that like any other.
"""

from broker.runtime.fair_stock import FairStock, Over, Path
from broker.workers.push.endpoint import Endpoint

MAX_OPEN_REQUESTS = 4_000  # of a process
SLOW_SECONDS = 1.0  # an answer that takes longer is slow, as Google's service has it
_IN_DOUBT = "in doubt"


class PushSlots:
    """Of one process.  No clock: times are given, in seconds."""

    def __init__(self, capacity: int = MAX_OPEN_REQUESTS) -> None:
        self._capacity = capacity
        self._stock = FairStock(capacity)

    @property
    def taken(self) -> int:
        """By all."""
        return self._stock.total

    @property
    def free(self) -> int:
        """What is left of all."""
        return self._capacity - self._stock.total

    def take(self, endpoint: Endpoint, now: float) -> Path | Over:
        """A slot for a request, which is given back by the path; or who has no room for it."""
        path = self._path(endpoint, now)
        return self._over_as_slow(endpoint, path, now) or self._stock.take(path) or path

    def give_back(self, slot: Path) -> None:
        """The request has ended, or has its slot no longer."""
        self._stock.give_back(slot)

    def has_room(self, endpoint: Endpoint, now: float) -> bool:
        """Whether `take` would give a slot."""
        path = self._path(endpoint, now)
        return self._stock.room(path) > 0 and self._over_as_slow(endpoint, path, now) is None

    def _path(self, endpoint: Endpoint, now: float) -> Path:
        does_well = endpoint.health.does_well and endpoint.latency(now) <= SLOW_SECONDS
        if does_well:
            return endpoint.project, endpoint.subscription_id
        return endpoint.project, _IN_DOUBT, endpoint.subscription_id

    def _over_as_slow(self, endpoint: Endpoint, path: Path, now: float) -> Over | None:
        latency, held = endpoint.latency(now), len(endpoint.flights)
        if latency <= SLOW_SECONDS or not held or 2 * self._stock.total <= self._capacity:
            return None
        may_hold = int(self._stock.room(path) / latency)
        return Over(path, held, max(may_hold, 1)) if held >= may_hold else None
