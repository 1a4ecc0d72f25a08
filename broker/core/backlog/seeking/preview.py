"""What a seek would bring about (G2)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

MAX_PREVIEWED = 10_000  # messages of a shard that are looked at; beyond, what is told is an estimate


@dataclass(slots=True)
class Amount:
    """So many messages, of so many bytes."""

    messages: int = 0
    size: int = 0

    def add(self, messages: int, size: int) -> None:
        self.messages += messages
        self.size += size


@dataclass(frozen=True, slots=True)
class Preview:
    """`again`: had been handed out or acked, and would come again.  `skipped`: would have come, and would not.

    `not_retained`: were asked for and would not come, for they are acked or too old, or gone (`maybe_gone` of them
    at most: when those were published nobody knows).  `is_estimated`: there is more than was looked at.  `newest`:
    the publish time of the newest of all that comes again or is skipped (None: nothing is).
    """

    again: Amount
    skipped: Amount
    not_retained: int = 0
    maybe_gone: int = 0
    is_estimated: bool = False
    newest: datetime | None = None

    @property
    def count(self) -> int:
        """How many messages come again or are skipped."""
        return self.again.messages + self.skipped.messages


def in_all(shards: Sequence[Preview]) -> Preview:
    """Of several shards."""
    again, skipped = Amount(), Amount()
    for shard in shards:
        again.add(shard.again.messages, shard.again.size)
        skipped.add(shard.skipped.messages, shard.skipped.size)
    return Preview(
        again,
        skipped,
        sum(shard.not_retained for shard in shards),
        sum(shard.maybe_gone for shard in shards),
        any(shard.is_estimated for shard in shards),
        max((shard.newest for shard in shards if shard.newest is not None), default=None),
    )
