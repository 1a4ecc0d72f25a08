"""Logs failures of work that is retried: once each, and not if they pass by themselves."""

import logging

from broker.model.errors import Aborted, BrokerError, Unavailable
from broker.observability.log import reason
from broker.observability.state_changes import StateChanges

PASSING_SECONDS = 5.0  # shorter failures that may pass by themselves are not logged


def report_failure(
    states: StateChanges, kind: str, name: str, what: str, error: BaseException, *, lasted: float
) -> None:
    """Reports work that has failed for `lasted` seconds, now with `error`; a defect is logged with its traceback.

    `kind`, `name` and `what` are as StateChanges has them.
    """
    if isinstance(error, Unavailable | Aborted) and lasted < PASSING_SECONDS:
        return
    is_defect = not isinstance(error, BrokerError)
    states.begins(
        kind,
        name,
        what,
        reason(error),
        lasted=lasted,
        level=logging.ERROR if is_defect else logging.WARNING,
        error=error if is_defect else None,
    )
