"""Where a subscription stands in one shard of its topic (A9, B3)."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Position:
    """`next_seq` is the first sequence that was never claimed: `unclaimed` messages from it on up to `head`;
    `outstanding` counts those before it that are not acked.
    """

    shard_id: int
    next_publish_time: datetime
    next_seq: int
    head: int
    unclaimed: int
    outstanding: int

    @property
    def undelivered(self) -> int:
        """Messages that are not acked, delivered or not."""
        return self.unclaimed + self.outstanding
