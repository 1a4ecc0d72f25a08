"""Publishers of a topic that are part of the broker: schedules, dead-letter policies, operations and events."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

Kind = Literal["DEAD_LETTER_POLICY", "SCHEDULE", "OPERATION", "EVENTS"]


class PublisherState(StrEnum):
    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    DENIED = "DENIED"  # the service agent of its project has no permission


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPublisher:
    """A publisher; `name` is that of its schedule, subscription or operation, or of the settings of a project.

    `created_by`: the principal that made or started it ("": not recorded).  `service_agent`: the principal that
    needs the permission to publish ("": the project is that of the topic, and needs none).  `reason`: why it is
    denied.
    """

    name: str
    kind: Kind
    created_by: str = ""
    service_agent: str = ""
    state: PublisherState = PublisherState.ACTIVE
    reason: str = ""
