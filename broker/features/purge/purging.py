"""The options of a purge (G2)."""

from dataclasses import dataclass
from datetime import datetime

from broker.model.errors import InvalidArgument
from broker.model.preview import UNGUARDED, Safeguards


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeOptions:
    """The options of a purge, as the caller gave them.

    `before`: only messages published before this time are dropped (None: there is no limit).
    """

    before: datetime | None = None
    undoable: bool = False
    filter: str = ""
    max_rate: float | None = None
    safeguards: Safeguards = UNGUARDED


def check_purge(options: PurgeOptions) -> None:
    """Raises InvalidArgument."""
    if options.filter and options.undoable:
        raise InvalidArgument("undoable is for a purge without a filter: one with a filter cannot be undone.")
    if not options.filter and options.max_rate is not None:
        raise InvalidArgument("maxMessagesPerSecond is for a purge with a filter, which is an operation.")
