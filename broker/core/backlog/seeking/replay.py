"""The effect of a seek: the messages that it has made deliverable again (A9)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

MAX_COUNTED = 10_000  # messages of a shard that are read one by one to be counted: about 10 ms


@dataclass(frozen=True, slots=True)
class ShardReplay:
    """The effect of a seek in one shard.

    So many messages (`at_least`: or more) that had been delivered or acked are delivered again.  `since`: from this
    publish time on messages were requested that the subscription had passed (None: none).
    """

    messages: int
    at_least: bool = False
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Undo:
    """The means to undo a seek until a time: `snapshot` holds the previous position of the subscription."""

    snapshot: str
    until: datetime


@dataclass(frozen=True, slots=True)
class Replay:
    """The effect of a seek in all shards.

    `retained_since`: only messages published from then on can be delivered again (None: only those that are not
    acked); `not_retained` explains which requested messages are not ("": all are).  `undo`: how to undo the seek
    (None: it cannot be undone).
    """

    messages: int
    at_least: bool
    retained_since: datetime | None
    not_retained: str
    undo: Undo | None = None


def replay(shards: Sequence[ShardReplay], *, retained_since: datetime | None, why: str) -> Replay:
    """Returns the effect of all shards; `why` explains which requested messages are not retained."""
    asked = [shard.since for shard in shards if shard.since is not None]
    missed = bool(asked) and (retained_since is None or min(asked) < retained_since)
    return Replay(
        messages=sum(shard.messages for shard in shards),
        at_least=any(shard.at_least for shard in shards),
        retained_since=retained_since,
        not_retained=why if missed else "",
    )
