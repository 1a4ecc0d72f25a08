"""Finds out how far the journal can be read while others write it (F3).

A row gets its number before its transaction ends, so a row with a lower number may appear after one with a higher
number.  A transaction that writes has an id before it takes a number.  So if number n was given out before
transaction x began, no row up to n can appear once all transactions before x have ended.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from broker.model.journal import Entry, Range

LONGEST_SECONDS = 60.0  # that a transaction of a broker takes; those of others may go on for hours


class Ends(NamedTuple):
    """The last `number` that was given out, and the transactions that were active after it was read.

    By each server that has a part of the journal: `oldest` is the oldest active transaction, and `next` the next
    one to begin; they are equal if none is active.
    """

    number: int
    oldest: Mapping[int, int]
    next: Mapping[int, int]

    def is_past(self, then: "Ends") -> bool:
        """Returns whether all transactions that were active `then` have ended.  A server that was
        removed has none.
        """
        return all(self.oldest.get(server, next_) >= next_ for server, next_ in then.next.items())


class Written(NamedTuple):
    """A row of the journal: an event of the messages with these sequences."""

    number: int
    shard_id: int
    ranges: Sequence[Range]
    entry: Entry


@dataclass(slots=True)
class Horizon:
    """The `number` up to which the journal is complete: no row up to it can appear any more."""

    number: int = 0
    _waiting: tuple[Ends, float] | None = (
        None  # what will be the next one, once the transactions of then have ended
    )

    def observe(self, ends: Ends, at: float) -> None:
        """Updates the horizon with the ends that were read at a time (in seconds).

        A transaction that takes longer than LONGEST_SECONDS is not waited for.
        """
        then, since = self._waiting or (ends, at)
        if ends.oldest == ends.next:
            self.number, self._waiting = ends.number, None
        elif ends.is_past(then) or at - since > LONGEST_SECONDS:
            self.number, self._waiting = then.number, (ends, at)
        else:
            self._waiting = then, since
