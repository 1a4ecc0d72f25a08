"""Purges by a filter: what a subscription has of a kind is dropped, step by step (G2)."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from broker.domain.errors import InvalidArgument
from broker.domain.log_page import LogPosition


class PurgeOutcome(StrEnum):
    """What became of a message.  OUTSTANDING: it is just being dead-lettered, behind others of its key."""

    PURGED = "purged"
    OUTSTANDING = "outstanding"


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeOptions:
    """As it was asked for; `before` None: whenever it was published."""

    before: datetime | None = None
    undoable: bool = False
    filter: str = ""
    max_rate: float | None = None
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToPurge:
    """What is meant: messages published before `until` that a filter and the subscription's own match, from the
    oldest on that it has of each shard (`starts`) to the last that there was (`ends`).
    """

    subscription_id: int
    starts: Mapping[int, datetime]
    ends: Mapping[int, int]
    until: datetime
    filter_path: str | None = None
    body_path: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As it is stored with its operation."""
        starts = {str(shard_id): start.isoformat() for shard_id, start in self.starts.items()}
        ends = {str(shard_id): end for shard_id, end in self.ends.items()}
        return asdict(self) | {"starts": starts, "ends": ends, "until": self.until.isoformat()}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "ToPurge":
        """The other way."""
        starts = {int(shard_id): datetime.fromisoformat(text) for shard_id, text in stored["starts"].items()}
        ends = {int(shard_id): end for shard_id, end in stored["ends"].items()}
        until = datetime.fromisoformat(stored["until"])
        return cls(**{**stored, "starts": starts, "ends": ends, "until": until})

    def next_look(self, progress: Mapping[str, Any]) -> LogPosition | None:
        """Behind which message to go on; None: nothing is left."""
        later = [shard_id for shard_id in sorted(self.starts) if shard_id >= progress.get("shard", 0)]
        if not later:
            return None
        if later[0] == progress.get("shard") and "seq" in progress:
            return LogPosition(later[0], datetime.fromisoformat(progress["time"]), progress["seq"])
        return LogPosition(later[0], self.starts[later[0]], -1)


def check_purge(options: PurgeOptions) -> None:
    """Raises InvalidArgument."""
    if options.filter and options.undoable:
        raise InvalidArgument("undoable is for a purge without a filter: one with a filter cannot be undone.")
    if not options.filter and (options.validate_only or options.max_rate is not None):
        raise InvalidArgument(
            "validateOnly and maxMessagesPerSecond are for a purge with a filter, which is an operation; "
            "previewSeek says what one without would skip."
        )
