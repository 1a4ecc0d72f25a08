"""Iterates over the logs of a subscription, step by step, in their order (G2)."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from broker.core.log.log_page import LogPosition


@dataclass(frozen=True, slots=True, kw_only=True)
class LogWalk:
    """The messages of a walk.

    They are published before `until`, match the filters, and are of each shard from a time on (`starts`) to a last
    sequence (`ends`).
    """

    subscription_id: int
    starts: Mapping[int, datetime]
    ends: Mapping[int, int]
    until: datetime
    filter_path: str | None = None
    body_path: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Encodes the walk as it is stored with its operation."""
        starts = {str(shard_id): start.isoformat() for shard_id, start in self.starts.items()}
        ends = {str(shard_id): end for shard_id, end in self.ends.items()}
        return asdict(self) | {"starts": starts, "ends": ends, "until": self.until.isoformat()}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "LogWalk":
        """The other way."""
        starts = {int(shard_id): datetime.fromisoformat(text) for shard_id, text in stored["starts"].items()}
        ends = {int(shard_id): end for shard_id, end in stored["ends"].items()}
        until = datetime.fromisoformat(stored["until"])
        return cls(**{**stored, "starts": starts, "ends": ends, "until": until})

    def next_position(self, progress: Mapping[str, Any]) -> LogPosition | None:
        """Returns the position to go on from; None: nothing is left."""
        later = [shard_id for shard_id in sorted(self.starts) if shard_id >= progress.get("shard", 0)]
        if not later:
            return None
        if later[0] == progress.get("shard") and "seq" in progress:
            return LogPosition(later[0], datetime.fromisoformat(progress["time"]), progress["seq"])
        return LogPosition(later[0], self.starts[later[0]], -1)
