"""The rule that says which dead letters can be acted on, for counts, lists, redrives, discards and edits (G2).

The subscriptions of a dead-letter topic receive its dead letters.  One that a subscription has yet to acknowledge
can be acted on for as long as that subscription retains it.  One that no subscription has received can be acted on
for a week, or for the retention of its topic if that is longer.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from broker.core.backlog.delivery_state import BACKLOG, DeliveryState
from broker.model.message_id import message_id
from broker.model.timestamps import format_timestamp


class Resolution(StrEnum):
    """The way in which a dead letter was resolved, according to its record.

    ACKNOWLEDGED: by a subscription that has been deleted since.
    """

    ACKNOWLEDGED = "acknowledged"
    DISCARDED = "discarded"
    EDITED = "edited"


@dataclass(frozen=True, slots=True)
class DeadLetterState:
    """The facts about one dead letter that decide whether it can be acted on.

    `resolution`: that of its record (None: none).  `is_kept`: it is within the time for which dead letters are
    kept.  `states`: its state in each subscription of its topic.
    """

    resolution: str | None
    is_kept: bool
    states: Collection[DeliveryState]


def can_be_acted_on(newest_first: Iterable[DeadLetterState]) -> bool:
    """Returns whether a message can be acted on, given the states of all its dead letters.

    A message has several if it was replayed by a seek and failed again.  Whatever resolved a dead letter also
    resolved the earlier ones.
    """
    resolved = False
    for dead_letter in newest_first:
        if dead_letter.resolution == Resolution.EDITED:  # the message came back as another one
            resolved = True
        elif not BACKLOG.isdisjoint(dead_letter.states):
            return True
        elif dead_letter.resolution is not None or DeliveryState.SETTLED in dead_letter.states:
            resolved = True
        elif dead_letter.is_kept and not resolved:
            return True
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The resolution of a dead letter.

    `at`: the time (None: unknown).  `by`: the principal ("": unknown).  `successor`: the message that replaced it.
    """

    resolution: Resolution
    at: datetime | None = None
    by: str = ""
    successor: tuple[int, int] | None = None

    def verdict(self) -> str:
        """Returns the end of a sentence about the dead letter, such as "was discarded at …"."""
        by = f" by {self.by}" if self.by else ""
        as_new = f", and came back as message {message_id(*self.successor)}" if self.successor is not None else ""
        at = f" at {format_timestamp(self.at)}" if self.at is not None else ""
        return f"was {self.resolution}{at}{by}{as_new}"
