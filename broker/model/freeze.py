"""A freeze: publishes to a topic are refused until an operator ends it."""

from dataclasses import dataclass
from datetime import datetime

from broker.model.errors import FailedPrecondition, InvalidArgument
from broker.model.names import leaf
from broker.model.refusals import refuse_nul
from broker.model.timestamps import format_timestamp

MAX_REASON = 1_000  # characters


@dataclass(frozen=True, slots=True)
class Freeze:
    """Why ("": nobody said), since when, and by whom ("": it is not known)."""

    reason: str
    since: datetime
    by: str = ""

    def refusal(self, topic: str) -> FailedPrecondition:
        """Returns the error for a publish to the frozen topic."""
        by = f" by {self.by}" if self.by else ""
        why = self.reason.rstrip(".") or "no reason was given"
        since = format_timestamp(self.since)
        return FailedPrecondition(f"Topic is frozen since {since}{by}: {why} (resource={leaf(topic)}).")


def check_reason(reason: str) -> None:
    """Raises InvalidArgument for a reason that is too long, or has U+0000."""
    refuse_nul(reason, "reason")
    if len(reason) > MAX_REASON:
        raise InvalidArgument(f"reason has {len(reason)} characters, the maximum is {MAX_REASON}.")
