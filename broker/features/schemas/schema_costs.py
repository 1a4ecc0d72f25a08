"""Remembers which schemas have recently taken long to check a message, for each project.

The cost of a check cannot be predicted from the schema and the message, so it is learned.  A schema whose last
checks were short is *proven*.  A schema that took long is *slow* for a while, and so are all unknown schemas of its
project, so that a new revision of the same schema does not start afresh.
"""

from collections import OrderedDict
from datetime import timedelta
from typing import Generic, TypeVar

LONG_SECONDS = 0.1  # of processor time for one job: more makes its schema slow
SLOW_FOR = timedelta(minutes=10)
MAX_KNOWN = 10_000  # schemas, and projects; the least recently used is forgotten first
_PROVEN = 0.0

K = TypeVar("K")


class SchemaCosts:
    """The costs of schemas, as one process knows them.  Times are seconds of any one clock."""

    def __init__(self) -> None:
        self._schemas = _Times[tuple[str, int]]()  # by project and revision number: slow until then, or _PROVEN
        self._projects = _Times[str]()  # with slow schemas

    def is_slow(self, project: str, number: int, now: float) -> bool:
        """`number` of the revision; 0: it is not stored, and never known."""
        until = self._schemas.find((project, number))
        return now < (self._projects.find(project) or _PROVEN if until is None else until)

    def is_proven(self, project: str, number: int) -> bool:
        return self._schemas.find((project, number)) == _PROVEN

    def learn(self, project: str, number: int, seconds: float, now: float) -> None:
        """Records that a job took so many seconds of processor time."""
        if seconds > LONG_SECONDS:
            until = now + SLOW_FOR.total_seconds()
            self._projects.set(project, until)
            if number:
                self._schemas.set((project, number), until)
        elif number and not self.is_slow(project, number, now):
            self._schemas.set((project, number), _PROVEN)


class _Times(Generic[K]):
    """Times by key, of the MAX_KNOWN keys that were used last."""

    def __init__(self) -> None:
        self._times: OrderedDict[K, float] = OrderedDict()

    def find(self, key: K) -> float | None:
        found = self._times.get(key)
        if found is not None:
            self._times.move_to_end(key)
        return found

    def set(self, key: K, time: float) -> None:
        self._times[key] = time
        self._times.move_to_end(key)
        if len(self._times) > MAX_KNOWN:
            self._times.popitem(last=False)
