"""Events that are published for operators, about conditions (F4), and how calls report them.

A *condition* holds for a while: an endpoint fails, a subscription lags.  An event reports that a condition has
begun, has ended, or has grown by a power of ten.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple, Protocol

from broker.db.driver.database import ResourceConnection

Kind = Literal[
    "endpoint",
    "message",
    "pause",
    "hold",
    "deadLetters",
    "deadLetterTopic",
    "schedule",
    "expiry",
    "quota",
    "disk",
    "filter",
    "age",
    "backlog",
]
Step = Literal["begins", "grows", "ends"]

TYPES: Mapping[Kind, Mapping[Step, str]] = {
    "endpoint": {"begins": "push.failing", "ends": "push.recovered"},
    "message": {"begins": "push.messageFailing"},
    "pause": {"begins": "push.paused", "ends": "push.resumed"},
    "hold": {"begins": "subscription.paused", "ends": "subscription.resumed"},  # for pull subscriptions
    "deadLetters": {"begins": "deadLetters.first", "grows": "deadLetters.growing"},
    "deadLetterTopic": {"begins": "deadLetters.blocked", "ends": "deadLetters.forwarded"},
    "schedule": {"begins": "schedule.refused", "ends": "schedule.accepted"},
    "expiry": {"begins": "subscription.expiring", "ends": "subscription.used"},
    "quota": {"begins": "quota.reached", "ends": "quota.available"},
    "disk": {"begins": "disk.low", "ends": "disk.recovered"},
    "filter": {"begins": "subscription.filterChanged"},  # this happens once, and the call reports it
    "age": {"begins": "subscription.ageReached", "ends": "subscription.caughtUp"},
    "backlog": {"begins": "subscription.backlogReached", "ends": "subscription.caughtUp"},
}
_PREFIX = "pubsub."


class Subject(NamedTuple):
    """The subject of a condition, in full: "projects/p", "backlog", "projects/p/subscriptions/s"."""

    project: str
    kind: Kind
    name: str


@dataclass(frozen=True, slots=True)
class Event:
    """An event to publish.  `since`: when the condition began."""

    subject: Subject
    step: Step
    why: str
    occurred_at: datetime
    since: datetime
    amount: int
    fields: Mapping[str, object] = field(default_factory=dict)

    @property
    def type(self) -> str:
        return _PREFIX + TYPES[self.subject.kind][self.step]


class TellEvent(Protocol):
    """Publishes an event in the transaction of a call."""

    async def __call__(self, connection: ResourceConnection, event: Event, *, topic: str) -> None:
        """Publish the event once the transaction of `connection` is committed, if the project wants events.

        `topic`: the topic of the event's subject; events are not published on the topic that they are about.
        """


async def discard_event(connection: ResourceConnection, event: Event, *, topic: str) -> None:
    """Discards an event: the TellEvent of a process whose features publish no events."""
