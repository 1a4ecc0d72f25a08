"""The position of a subscription in one shard of its topic (A9, B3)."""

from dataclasses import dataclass
from datetime import datetime

MAX_SCANNED = 10_000  # unclaimed messages that are compared with a filter to count those that match: some 10 ms


@dataclass(frozen=True, slots=True)
class Position:
    """`next_seq` is the first sequence that was never claimed: `unclaimed` messages from it on up to `head`;
    `outstanding` counts those before it that are not acked.  With a filter, `matching` of the first `scanned` of
    the unclaimed ones match it (None: no filter).  `oldest_outstanding` and `oldest_unclaimed` are publish times
    (None: there is none; with a filter, none among the messages that were scanned, `max_scanned` at most).
    """

    shard_id: int
    next_publish_time: datetime
    next_seq: int
    head: int
    unclaimed: int
    outstanding: int
    oldest_outstanding: datetime | None = None
    oldest_unclaimed: datetime | None = None
    scanned: int | None = None
    matching: int | None = None
    max_scanned: int = MAX_SCANNED

    @property
    def undelivered(self) -> int:
        """Messages that are not acked, delivered or not; what the filter does not match is not counted (A3)."""
        if self.scanned is None or self.matching is None:
            return self.unclaimed + self.outstanding
        if not self.is_estimated:
            return self.matching + self.outstanding
        return round(self.unclaimed * self.matching / self.scanned) + self.outstanding

    @property
    def is_estimated(self) -> bool:
        """`undelivered` is exact up to `max_scanned` unclaimed messages; beyond, it goes by those."""
        return self.scanned is not None and self.scanned >= self.max_scanned
