"""Caches the heads of shards to which only this process publishes (docs/decisions/0059).

On distributed tables the statements of a flush contain the sequence of each row.  If the head is cached, the
process need not read it: the flush contains the expected head, and takes one round trip.  If the head is another
one, the flush is rolled back, and the head is read.
"""

from dataclasses import dataclass
from datetime import datetime

FIRST_NEEDED = 4  # consecutive flushes without one of another process in between
_MOST_NEEDED = 4_096  # the upper bound; the number is quadrupled each time that the head was another
_MOST_SHARDS = 10_000


@dataclass(slots=True)
class _Head:
    head: int
    publish_time: datetime
    alone: int = 0  # consecutive flushes of this process
    needed: int = FIRST_NEEDED


class KnownHeads:
    """The heads of shards that one process expects.

    They are an optimization: the statement that moves a head checks that it is the expected one.
    """

    def __init__(self) -> None:
        self._heads: dict[int, _Head] = {}

    def expect(self, shard_id: int, count: int, now: datetime) -> tuple[int, datetime] | None:
        """The head before a flush of so many that is sent now, and its time; None: it has to ask."""
        known = self._heads.get(shard_id)
        if known is None or known.alone < known.needed:
            return None
        before = known.head
        known.head, known.publish_time = before + count, max(known.publish_time, now)
        return before, known.publish_time

    def moved(self, shard_id: int, count: int, head: int, publish_time: datetime) -> None:
        """Records the head after a flush that read it, and has locked the shard's row until it ends."""
        known = self._heads.get(shard_id)
        if known is None:
            if len(self._heads) >= _MOST_SHARDS:
                self._heads.clear()
            self._heads[shard_id] = _Head(head, publish_time)
            return
        known.alone = known.alone + 1 if known.head == head - count else 0
        known.head, known.publish_time = head, publish_time

    def mistaken(self, shard_id: int) -> None:
        """Records that another process publishes to the shard."""
        if (known := self._heads.get(shard_id)) is not None and known.alone:
            known.alone, known.needed = 0, min(4 * known.needed, _MOST_NEEDED)

    def lost(self, shard_id: int) -> None:
        """Records that a flush failed, so that the head is not known."""
        if (known := self._heads.get(shard_id)) is not None:
            known.alone = 0
