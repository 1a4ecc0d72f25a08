"""What publishes on a topic without a caller: schedules, dead-letter policies, operations and events."""

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
    """`name`: of the schedule, the subscription, the operation, or the settings of a project.

    `created_by` is the principal that made or started it, "" where that is not recorded.  `service_agent` is who
    needs the permission to publish, "" for the topic's own project, which needs none.  `reason`: why it is denied.
    """

    name: str
    kind: Kind
    created_by: str = ""
    service_agent: str = ""
    state: PublisherState = PublisherState.ACTIVE
    reason: str = ""
