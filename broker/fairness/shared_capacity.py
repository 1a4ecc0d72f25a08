"""Shared capacity: slots, bytes or places in a queue that tenants share (M1).

No tenant may hold more than `ALPHA` times what is free.  So a tenant alone gets four fifths of all; the more others
hold, the less each may have; and a newcomer finds capacity, because the others were stopped before it was used up.
(Dynamic thresholds: Choudhury and Hahne, 1998.)  Within a project the same rule applies to its tenants and the
capacity that the project may still get.

    slots = SharedCapacity(20_000)
    over = slots.take(project_path)             # or several paths: all must have capacity
    if over is not None:
        raise Unavailable(...over.path...)      # the tenant that exceeds its share
    ...
    slots.give_back(project_path)               # the same paths and amount, once

A path names a tenant from the outside in: `(project, subscription)`.  If callers can make up projects, something
that they cannot make up is counted as well: `take((project, subscription), (connection,))`.

This module has no clock and no tasks.  Each call costs O(1) for each key, and no state is kept of tenants that hold
nothing.
"""

import math
from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

Path = tuple[Hashable, ...]

ALPHA = 4.0  # 1 would leave half of all unused as long as one is alone; docs/decisions/0020-fair-shares.md


@dataclass(frozen=True, slots=True)
class Over:
    """A refusal of capacity.

    The tenant at the end of `path` (empty: all tenants together) holds `held` of `most`, for now.
    """

    path: Path
    held: int
    most: int


class SharedCapacity:
    """A capacity that tenants share.  Amounts are whole numbers in one unit: pieces, or bytes."""

    def __init__(self, capacity: int, *, alpha: float = ALPHA) -> None:
        """`capacity`: 0 or more; `alpha`: 1 or more, so that who has nothing may have all that is free."""
        self._capacity = capacity
        self._alpha = alpha
        self._total = 0
        self._held = defaultdict[Path, int](int)

    @property
    def total(self) -> int:
        """The capacity that all tenants hold."""
        return self._total

    def held(self, path: Path) -> int:
        """Returns the capacity held under a path, or the beginning of one."""
        return self._held.get(path, 0)

    def take(self, *paths: Path, amount: int = 1) -> Over | None:
        """Holds so much more, and returns None.

        Otherwise holds nothing more, and returns the tenant that has no room for it.
        """
        if not self._is_plenty(amount):
            for path in paths:
                over = self._over(path, amount)
                if over is not None:
                    return over
        self.hold(*paths, amount=amount)
        return None

    def hold(self, *paths: Path, amount: int = 1) -> None:
        """Hold so much more, whether or not there is room for it."""
        self._total += amount
        for path in paths:
            for depth in range(1, len(path) + 1):
                self._held[path[:depth]] += amount

    def give_back(self, *paths: Path, amount: int = 1) -> None:
        """Gives capacity back that was taken, once and no more than was taken."""
        self._total -= amount
        for path in paths:
            for depth in range(1, len(path) + 1):
                key = path[:depth]
                self._held[key] -= amount
                if not self._held[key]:
                    del self._held[key]

    def available(self, path: Path) -> int:
        """Returns how much may be taken now: in one call or in many."""
        return min(available for _, available in self._available_at_each_depth(path))

    def _is_plenty(self, amount: int) -> bool:
        """Whether so much is free that any tenant may take it: even one that held all that is held, at every depth.

        `_available_at_each_depth` of that tenant falls with each depth, and never below this.
        """
        free = self._capacity - self._total
        return self._alpha * amount <= free * (self._alpha - 1) - self._total

    def _available_at_each_depth(self, path: Path) -> Iterator[tuple[Path, int]]:
        """Yields how much the beginnings of a path may take, from the outside in.

        Within the one before, `free - k * falls` is free once k more are taken.  Each may take while it holds less
        than alpha times as much.
        """
        free, falls = float(self._capacity - self._total), 1.0
        yield (), self._capacity - self._total
        for depth in range(1, len(path) + 1):
            key = path[:depth]
            free, falls = self._alpha * free - self._held.get(key, 0), self._alpha * falls + 1
            yield key, max(math.ceil(free / falls), 0)

    def _over(self, path: Path, amount: int) -> Over | None:
        for key, available in self._available_at_each_depth(path):
            if available < amount:
                held = self._held.get(key, 0) if key else self._total
                return Over(key, held, held + available)
        return None
