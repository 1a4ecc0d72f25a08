"""Options of the operations that push messages again (G2).

A recovery delivers what the subscription gave up since a time.  A replay of missing messages delivers what was
published before the endpoint was set, unless this endpoint has accepted it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from broker.core.backlog.outcome import Outcome
from broker.core.log.log_walk import LogWalk
from broker.model.dead_letter import DEADLINE, PUSH
from broker.model.errors import InvalidArgument
from broker.model.preview import UNGUARDED, Safeguards


class Missed(StrEnum):
    """The reason for which a message is delivered again.

    EXPIRED: it was not acknowledged within the retention.  UNSEEN: the endpoint has not accepted it.
    """

    EXPIRED = "expired"
    UNSEEN = "unseen"


DONE = frozenset({Outcome.REPLAYED, Outcome.WAITING, Outcome.DELIVERED})


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverOptions:
    """Options of a recovery of what was dead-lettered since `start_time`."""

    start_time: datetime | None = None
    max_rate: float | None = None
    safeguards: Safeguards = UNGUARDED


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingOptions:
    """Options of a replay of what was published since `start_time`.

    `endpoint_time`: the time since which the subscription has its endpoint (None: when that was set).
    """

    start_time: datetime | None = None
    endpoint_time: datetime | None = None
    max_rate: float | None = None
    safeguards: Safeguards = UNGUARDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Meant:
    """The messages to deliver again, among those that a walk of the log finds.

    They expired between `since` and `until`, or the journal does not say that the endpoint accepted them in that
    time.
    """

    missed: Missed
    walk: LogWalk
    since: datetime
    until: datetime

    def to_json(self) -> dict[str, Any]:
        """Returns the form in which the operation stores this."""
        times = {"since": self.since.isoformat(), "until": self.until.isoformat()}
        return {"missed": self.missed, "walk": self.walk.to_json(), **times}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Meant":
        """Returns what an operation has stored."""
        return cls(
            missed=Missed(stored["missed"]),
            walk=LogWalk.from_json(stored["walk"]),
            since=datetime.fromisoformat(stored["since"]),
            until=datetime.fromisoformat(stored["until"]),
        )


def needed(start_time: datetime | None) -> datetime:
    """Returns the start time.  Raises InvalidArgument if it is missing."""
    if start_time is None:
        raise InvalidArgument("startTime is missing: a time from which on.")
    return start_time


def is_of_push(reason: str) -> bool:
    """Returns whether a reason says that a message was pushed and not accepted."""
    return reason.startswith(PUSH) or reason == DEADLINE
