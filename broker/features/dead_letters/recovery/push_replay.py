"""Pushes that failed, or went to another endpoint, are brought about once more (G2).

To recover is to bring back what the subscription gave up since a time; to replay what is missing, all that was
published before its endpoint was set and that this endpoint has not taken.
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
    """Why a message is to come.  EXPIRED: it was not acknowledged within the retention, and was let go.  UNSEEN:
    the endpoint has not taken it.
    """

    EXPIRED = "expired"
    UNSEEN = "unseen"


DONE = frozenset({Outcome.REPLAYED, Outcome.WAITING, Outcome.DELIVERED})


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverOptions:
    """As it was asked for: what was dead-lettered since then."""

    start_time: datetime | None = None
    max_rate: float | None = None
    safeguards: Safeguards = UNGUARDED


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingOptions:
    """As it was asked for: what was published since `start_time`; `endpoint_time`: the endpoint is the
    subscription's since then (None: since it was set).
    """

    start_time: datetime | None = None
    endpoint_time: datetime | None = None
    max_rate: float | None = None
    safeguards: Safeguards = UNGUARDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Meant:
    """What is meant of the messages on a walk: those that expired within a time, or those that nothing says the
    endpoint to have taken within it.
    """

    missed: Missed
    walk: LogWalk
    since: datetime
    until: datetime

    def to_json(self) -> dict[str, Any]:
        """As it is stored with its operation."""
        times = {"since": self.since.isoformat(), "until": self.until.isoformat()}
        return {"missed": self.missed, "walk": self.walk.to_json(), **times}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Meant":
        """The other way."""
        return cls(
            missed=Missed(stored["missed"]),
            walk=LogWalk.from_json(stored["walk"]),
            since=datetime.fromisoformat(stored["since"]),
            until=datetime.fromisoformat(stored["until"]),
        )


def needed(start_time: datetime | None) -> datetime:
    """Raises InvalidArgument."""
    if start_time is None:
        raise InvalidArgument("startTime is missing: a time from which on.")
    return start_time


def is_of_push(reason: str) -> bool:
    """Whether a message that was dead-lettered for this reason was pushed, and the endpoint did not take it."""
    return reason.startswith(PUSH) or reason == DEADLINE
