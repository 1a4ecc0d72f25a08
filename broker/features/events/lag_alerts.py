"""Finds subscriptions whose lag exceeds the limits of their alerts (F4)."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from broker.core.context.event import Subject
from broker.core.lag.lag import Lag
from broker.features.events.event_detection import Found
from broker.model.names import project_of

_NEARLY = 0.8  # of a threshold: an alert that began does not end above it


def lags_to_report(lag: Lag, now: datetime) -> Iterator[Found]:
    """Yields the conditions to report of a subscription with this lag."""
    alerts, name = lag.subscription.extensions.alerts, lag.subscription.name
    project = project_of(name)
    age = timedelta(0) if lag.oldest is None else now - lag.oldest
    if alerts.age is not None and age >= _NEARLY * alerts.age:
        why = f"the oldest message is {_seconds(age)} old, {_seconds(alerts.age)} are the mark. {lag.verdict}"
        yield Found(Subject(project, "age", name), why, begins=age >= alerts.age)
    if alerts.backlog is not None and lag.undelivered >= _NEARLY * alerts.backlog:
        about = "about " if lag.is_estimated else ""
        why = f"{about}{lag.undelivered} messages are not acked, {alerts.backlog} are the mark. {lag.verdict}"
        yield Found(Subject(project, "backlog", name), why, begins=lag.undelivered >= alerts.backlog)


def _seconds(duration: timedelta) -> str:
    return f"{round(duration.total_seconds())} s"
