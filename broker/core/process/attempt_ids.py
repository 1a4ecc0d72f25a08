"""Ids of delivery attempts, made by the broker processes rather than by a database sequence."""

from datetime import UTC, datetime, timedelta
from secrets import randbits

_RANDOM_BITS = 12
_PARTS_APART = 1024  # an attempt has at most 1,000 messages, and so at most 1,000 parts
_EPOCH = datetime(2025, 1, 1, tzinfo=UTC)  # 51 bits of microseconds last until 2096
_MICROSECOND = timedelta(microseconds=1)


def microseconds(at: datetime) -> int:
    """A time as ids count it."""
    return (at - _EPOCH) // _MICROSECOND


def handed_out_microseconds(attempt_id: int) -> int:
    """Returns about when the attempt was made, in microseconds: ids that are made at once differ by a few."""
    return attempt_id >> _RANDOM_BITS


class AttemptIds:
    """Time-ordered 63-bit ids: microseconds, then random bits that keep two processes apart.

    Two attempts of one subscription are ordered by its cursor's lock, so they differ in their microseconds; an
    id that still met its twin would break the primary key: Aborted, and tried again with another.
    """

    def __init__(self) -> None:
        self._last = 0

    def take(self, number: int, *, now: datetime) -> range:
        """`number` consecutive ids, greater than all this process has made before."""
        stamp = microseconds(now) << _RANDOM_BITS | randbits(_RANDOM_BITS)
        first = max(self._last + 1, stamp)
        self._last = first + number - 1
        return range(first, first + number)

    def take_parts(self, number: int, *, now: datetime) -> range:
        """`number` ids for new parts of attempts, so far apart that each may be counted up from: a statement that
        moves messages of several parts of an attempt numbers the new ones from there.
        """
        return self.take(number * _PARTS_APART, now=now)[::_PARTS_APART]
