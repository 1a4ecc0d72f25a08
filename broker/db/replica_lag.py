"""Measures how far a replica is behind its primary, without the replica's clock, and even if nothing is written."""

from collections import deque
from typing import NamedTuple

_MOST = 900  # samples, one a second: a quarter of an hour; for older ones the lag is coarser, not wrong


class WalPoint(NamedTuple):
    """The position of a server in its write-ahead log.

    Up to there the log of a primary is safe, and that of a standby has been replayed.  `system` names the database
    cluster that server and copies share; `follows`: it is a standby just now.
    """

    lsn: int
    system: int
    follows: bool


class ReplicaLag:
    """The age of the newest moment of the primary that the replica is known to have reached."""

    def __init__(self, now: float) -> None:
        """`now`: in seconds, of a clock that only goes forward."""
        self._as_of = now
        self._samples: deque[tuple[int, float]] = deque(maxlen=_MOST)
        self._replayed = -1

    def seconds(self, now: float) -> float:
        """Returns the upper bound of the lag, in seconds; it grows while nothing is heard of the replica."""
        return now - self._as_of

    def primary_is_at(self, lsn: int, now: float) -> bool:
        """Note where the primary is.  False: the replica has been where the primary never was, so it follows
        another one.
        """
        if self._samples and lsn < self._samples[-1][0]:
            self._samples.clear()  # another primary, after a failover
        self._samples.append((lsn, now))
        return self._replayed <= lsn

    def replica_is_at(self, lsn: int) -> None:
        """Note what the replica had replayed, after the primary's last position was read."""
        self._replayed = lsn
        while self._samples and self._samples[0][0] <= lsn:
            self._as_of = self._samples.popleft()[1]
