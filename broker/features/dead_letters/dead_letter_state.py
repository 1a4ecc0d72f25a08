"""Which dead letters can be acted on: one rule for all that counts, lists, redrives, discards and edits them (G2).

A dead letter is read by the subscriptions of its topic, if there are any.  One that a subscription has yet to
acknowledge can be acted on for as long as that subscription retains it; one that no subscription has received can
be acted on for a week, or for the retention of its topic if that is longer.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from broker.core.backlog.delivery_state import BACKLOG, DeliveryState
from broker.model.message_id import message_id
from broker.model.timestamps import format_timestamp


class Resolution(StrEnum):
    """What the record of a dead letter says became of it.  ACKNOWLEDGED: by a subscription that is gone since."""

    ACKNOWLEDGED = "acknowledged"
    DISCARDED = "discarded"
    EDITED = "edited"


@dataclass(frozen=True, slots=True)
class DeadLetterState:
    """One dead letter: what its record says, whether it is within the time for which dead letters are kept, and how
    it stands with each subscription of its topic.
    """

    resolution: str | None
    is_kept: bool
    states: Collection[DeliveryState]


def can_be_acted_on(newest_first: Iterable[DeadLetterState]) -> bool:
    """Whether a message that was dead-lettered is a dead letter still, by all dead letters that it has become.

    It has several if it was sought back and failed again: whatever resolved a dead letter has resolved the earlier
    ones.
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
    """Who resolved a dead letter (`by` "": not known), how and when (None: not known).

    `successor`: the message that it became.
    """

    resolution: Resolution
    at: datetime | None = None
    by: str = ""
    successor: tuple[int, int] | None = None

    def verdict(self) -> str:
        """As the end of a sentence about the dead letter: "was discarded at …"."""
        by = f" by {self.by}" if self.by else ""
        as_new = f", and came back as message {message_id(*self.successor)}" if self.successor is not None else ""
        at = f" at {format_timestamp(self.at)}" if self.at is not None else ""
        return f"was {self.resolution}{at}{by}{as_new}"
