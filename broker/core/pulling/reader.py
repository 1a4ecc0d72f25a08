"""Readers: the pulls and streams of subscriptions, as their processes report them (F3)."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

WRITTEN_EVERY = timedelta(seconds=5)
SHOWN_FOR = timedelta(seconds=15)  # since its process last wrote it: that process may have ended, or hang

ReaderKind = Literal["PULL", "STREAMING_PULL"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """A reader: one stream, or all pulls of one principal from one address through one process.

    `client_id` is what a stream's client calls itself, `principal` who it is (both "" if not known).  `outstanding`
    messages were delivered to it and are neither acked nor due again, the first since `oldest_since` (None: there
    are none).  Rates and times are those of the last minute or so, of acks through its own process: `ack_p50` and
    `ack_p99` seconds from a delivery to its ack (None: there was none).
    """

    subscription_id: int
    kind: ReaderKind
    process: str
    client_id: str = ""
    address: str = ""
    principal: str = ""
    since: datetime
    seen_at: datetime
    outstanding: int = 0
    oldest_since: datetime | None = None
    acks_per_second: float = 0.0
    ack_p50: float | None = None
    ack_p99: float | None = None

    def slowness(self) -> float:
        """Seconds: what it has had the longest, or what half of its acks take, if that is more."""
        held = 0.0 if self.oldest_since is None else (self.seen_at - self.oldest_since).total_seconds()
        return max(held, self.ack_p50 or 0.0)
