"""How far the journal can be read while others write it (F3).

A row has its number before its transaction ends, so one with a lower number may come after one with a higher.
Whoever writes has a transaction id before it takes a number.  So if number n was given out before transaction x
began, nothing up to n is to come once all transactions before x have ended.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from broker.model.journal import Entry, Range

LONGEST_SECONDS = 60.0  # that a transaction of a broker takes; those of others may go on for hours


class Ends(NamedTuple):
    """The last `number` that was given out, and, read after it, the oldest transaction that goes on (`oldest`) and
    the `next` one to begin, of each server that has a part of the journal; these are equal if none goes on.
    """

    number: int
    oldest: Mapping[int, int]
    next: Mapping[int, int]

    def is_past(self, then: "Ends") -> bool:
        """Whether all transactions have ended that went on `then`.  A server that is gone has none."""
        return all(self.oldest.get(server, next_) >= next_ for server, next_ in then.next.items())


class Written(NamedTuple):
    """A row of the journal: what happened to the messages of these sequences."""

    number: int
    shard_id: int
    ranges: Sequence[Range]
    entry: Entry


@dataclass(slots=True)
class Horizon:
    """Up to `number` the journal is written: nothing is to come."""

    number: int = 0
    _waiting: tuple[Ends, float] | None = (
        None  # what will be the next one, once the transactions of then have ended
    )

    def observe(self, ends: Ends, at: float) -> None:
        """How far it is written at a time, in seconds."""
        then, since = self._waiting or (ends, at)
        if ends.oldest == ends.next:
            self.number, self._waiting = ends.number, None
        elif ends.is_past(then) or at - since > LONGEST_SECONDS:
            self.number, self._waiting = then.number, (ends, at)
        else:
            self._waiting = then, since
