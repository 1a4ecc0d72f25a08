"""Copies: publishes the retained messages of a topic on another topic, unchanged (G2)."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from broker.core.log.log_page import LogPosition
from broker.model.errors import InvalidArgument
from broker.model.preview import UNGUARDED, Safeguards


class CopyOutcome(StrEnum):
    """The outcome of copying a message.  REFUSED: it does not conform to the schema of the target."""

    COPIED = "copied"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOptions:
    """The options of a copy, as they were requested; times None: any."""

    target: str
    filter: str = ""
    start_time: datetime | None = None
    end_time: datetime | None = None
    max_rate: float | None = None
    safeguards: Safeguards = UNGUARDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Meant:
    """The messages that a copy covers.

    They are messages of a topic that a filter matches and that were published from `since` on and before `until`,
    and no later than the call: up to the last sequence of each shard at that time (`ends`).
    """

    source_id: int
    target: str
    target_id: int
    ends: Mapping[int, int]
    since: datetime
    until: datetime
    filter_path: str | None = None
    body_path: str | None = None


def check_copy(options: CopyOptions) -> None:
    """Raises InvalidArgument."""
    if not options.target:
        raise InvalidArgument("targetTopic is missing: the full name of the topic that messages are copied to.")
    check_span(options.start_time, options.end_time)


def check_span(start: datetime | None, end: datetime | None) -> None:
    """Raises InvalidArgument for a time without a moment in it."""
    if start is not None and end is not None and start >= end:
        raise InvalidArgument(
            f"startTime must be before endTime (startTime={start.isoformat()}, endTime={end.isoformat()})."
        )


def meant_json(meant: Meant) -> dict[str, Any]:
    """Encodes a copy as it is stored with its operation."""
    texts = {"since": meant.since.isoformat(), "until": meant.until.isoformat()}
    return asdict(meant) | texts | {"ends": {str(shard_id): end for shard_id, end in meant.ends.items()}}


def meant_from(stored: Mapping[str, Any]) -> Meant:
    """The other way."""
    times = {name: datetime.fromisoformat(stored[name]) for name in ("since", "until")}
    return Meant(**{**stored, **times, "ends": {int(shard): end for shard, end in stored["ends"].items()}})


def next_position(meant: Meant, progress: Mapping[str, Any], shard_ids: tuple[int, ...]) -> LogPosition | None:
    """Returns the position to go on from, in the shards that the topic still has; None: nothing is left."""
    later = [id_ for id_ in sorted(meant.ends) if id_ >= progress.get("shard", 0) and id_ in shard_ids]
    if not later:
        return None
    if later[0] == progress.get("shard") and "seq" in progress:
        return LogPosition(later[0], datetime.fromisoformat(progress["time"]), progress["seq"])
    return LogPosition(later[0], meant.since, -1)


def progress_json(shard_id: int, read: LogPosition | None) -> dict[str, Any]:
    """Returns how far a shard was read, as JSON; None: all of it."""
    if read is None:
        return {"shard": shard_id + 1}
    return {"shard": shard_id, "time": read.publish_time.isoformat(), "seq": read.seq}
