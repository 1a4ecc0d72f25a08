"""The limits from which a subscription's lag raises an alert (F4)."""

from dataclasses import dataclass
from datetime import timedelta

from broker.model.durations import format_duration
from broker.model.errors import InvalidArgument

MIN_AGE, MAX_AGE = timedelta(seconds=10), timedelta(days=31)
MAX_BACKLOG = 10**12


@dataclass(frozen=True, slots=True, kw_only=True)
class Alerts:
    """`age`: of the oldest message that is not acked; `backlog`: how many are not acked.  None: nobody is told."""

    age: timedelta | None = None
    backlog: int | None = None


NO_ALERTS = Alerts()


def check_alerts(alerts: Alerts) -> None:
    """Raises InvalidArgument."""
    age, backlog = alerts.age, alerts.backlog
    if age is not None and not MIN_AGE <= age <= MAX_AGE:
        raise InvalidArgument(
            f"extensions.alerts.age must be from {format_duration(MIN_AGE)} to "
            f"{format_duration(MAX_AGE)} (age={format_duration(age)})."
        )
    if backlog is not None and not 1 <= backlog <= MAX_BACKLOG:
        raise InvalidArgument(f"extensions.alerts.backlog must be from 1 to {MAX_BACKLOG} (backlog={backlog}).")
