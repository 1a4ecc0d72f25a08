"""Slots: which endpoint gets one of the requests that a process may have open (M1).

Slots are shared by projects, and within a project by subscriptions (fairness/shared_capacity.py).  Push adds these
rules:

* Endpoints that do not work well, or of which this is not known yet, are *in doubt*.  In a project they share a
  part of the slots, and so leave capacity for healthy ones: a hundred new subscriptions of a host that hangs do not
  stop their neighbours.  The same applies to all projects together, by origin, because any number of project names
  can be made up.
* Once half of all slots are taken, an endpoint in doubt has one request open at a time until it has answered, and
  one that takes seconds to answer has its number of requests divided by these seconds, down to one.  While there is
  capacity, each may use it like any other endpoint.
* An endpoint without an open request that finds no capacity gets a slot from a reserve.  Open requests are never
  cut off, so there must be slots for other endpoints when healthy ones all hang at once.
"""

from broker.core.pushing.endpoint import IN_DOUBT, Endpoint, Slot
from broker.core.pushing.health.endpoint_health import SLOW_LATENCY
from broker.fairness.shared_capacity import Over, Path, SharedCapacity

MAX_OPEN_REQUESTS = 4_000  # of a process
FIRST_REQUESTS = 500  # the reserve, in addition


class PushSlots:
    """The slots of one process.  It has no clock: times are passed in, in seconds."""

    def __init__(self, capacity: int = MAX_OPEN_REQUESTS, reserve: int = FIRST_REQUESTS) -> None:
        self._capacity = capacity
        self._shared_capacity = SharedCapacity(capacity)
        self._reserve_size = reserve
        self._reserve = SharedCapacity(reserve)

    @property
    def taken(self) -> int:
        """The number of slots that are taken."""
        return self._shared_capacity.total + self._reserve.total

    @property
    def free(self) -> int:
        """The number of free slots, with those of the reserve."""
        return self._capacity + self._reserve_size - self.taken

    def take(self, endpoint: Endpoint, now: float) -> Slot | Over:
        """Takes a slot for a request, which is given back; or returns the tenant that has no room for it."""
        paths = _paths(endpoint, now)
        endpoint.payer = endpoint.project if len(paths) == 1 else IN_DOUBT
        over = self._over_its_part(endpoint, paths[0], now) or self._shared_capacity.take(*paths)
        if over is None:
            return Slot(self._shared_capacity, paths, now)
        if endpoint.flights or self._reserve.take(*paths) is not None:
            return over
        return Slot(self._reserve, paths, now)

    def give_back(self, slot: Slot) -> None:
        """Gives back a slot of a request that has ended, or lost its slot."""
        slot.shared_capacity.give_back(*slot.paths)

    def has_capacity(self, endpoint: Endpoint, now: float) -> bool:
        """Whether `take` would give a slot."""
        paths = _paths(endpoint, now)
        if self._over_its_part(endpoint, paths[0], now) is None and all(
            map(self._shared_capacity.available, paths)
        ):
            return True
        return not endpoint.flights and all(map(self._reserve.available, paths))

    def _over_its_part(self, endpoint: Endpoint, path: Path, now: float) -> Over | None:
        """Whether an endpoint has as much as it may have though there is room, because others want that too."""
        held = len(endpoint.flights)
        if not held or 2 * self._shared_capacity.total <= self._capacity:
            return None
        if not endpoint.health.does_well:
            return Over(path, held, 1)
        latency = endpoint.latency(now)
        if latency <= SLOW_LATENCY:
            return None
        may_hold = int(self._shared_capacity.available(path) / latency)
        return Over(path, held, max(may_hold, 1)) if held >= may_hold else None


def _paths(endpoint: Endpoint, now: float) -> tuple[Path, ...]:
    if endpoint.in_doubt(now):
        return (endpoint.project, IN_DOUBT, endpoint.subscription_id), (IN_DOUBT, endpoint.origin, endpoint.project)
    return ((endpoint.project, endpoint.subscription_id),)
