"""The result of a previewed seek (G2)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

MAX_PREVIEWED = 10_000  # messages of a shard that are compared; beyond them the result is an estimate


@dataclass(slots=True)
class Amount:
    """An amount of messages, and their size in bytes."""

    messages: int = 0
    size: int = 0

    def add(self, messages: int, size: int) -> None:
        self.messages += messages
        self.size += size


@dataclass(frozen=True, slots=True)
class Preview:
    """A preview of a seek in a shard, or in several.

    `again`: messages that had been delivered or acked, and would be delivered again.  `skipped`: messages that
    would have been delivered, and would not be.  `not_retained`: requested messages that would not be delivered,
    because they are acked, too old or gone (`maybe_gone` of them at most: their publish times are not known).
    `is_estimated`: there are more messages than were read.  `newest`: the publish time of the newest message that
    is delivered again or skipped (None: there is none).
    """

    again: Amount
    skipped: Amount
    not_retained: int = 0
    maybe_gone: int = 0
    is_estimated: bool = False
    newest: datetime | None = None

    @property
    def count(self) -> int:
        """The number of messages that are delivered again or skipped."""
        return self.again.messages + self.skipped.messages


def in_all(shards: Sequence[Preview]) -> Preview:
    """Returns the previews of several shards as one."""
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
