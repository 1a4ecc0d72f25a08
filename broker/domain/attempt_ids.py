"""Ids of delivery attempts, made by the broker processes rather than by a database sequence."""

from secrets import randbits

_RANDOM_BITS = 12
_EPOCH_MICROSECONDS = 1_735_689_600_000_000  # 2025-01-01; 51 bits of microseconds last until 2096


class AttemptIds:
    """Time-ordered 63-bit ids: microseconds, then random bits that keep two processes apart.

    Two attempts of one subscription are ordered by its cursor's lock, so they differ in their microseconds; an
    id that still met its twin would break the primary key, and the claim would be tried again.
    """

    def __init__(self) -> None:
        self._last = 0

    def take(self, number: int, *, now_microseconds: int) -> range:
        """`number` consecutive ids, greater than all this process has made before."""
        stamp = (now_microseconds - _EPOCH_MICROSECONDS) << _RANDOM_BITS | randbits(_RANDOM_BITS)
        first = max(self._last + 1, stamp)
        self._last = first + number - 1
        return range(first, first + number)
