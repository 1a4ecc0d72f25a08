"""Detects events, once for each cause (F4): compares conditions with those that events were published about.

An event is published as a message in the manner of CloudEvents
(https://github.com/google/knative-gcp/blob/main/docs/spec/pubsub-protocol-binding.md).
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from broker.core.context.event import TYPES, Event, Kind, Subject
from broker.core.pushing.endpoint_failure import (
    describe_failing_message,
    describe_run,
    endpoint_failure_fields,
    failing_message_fields,
)
from broker.model.message import NewMessage
from broker.model.names import project_of
from broker.model.push_state import PushState
from broker.model.timestamps import format_timestamp

LAGS: tuple[Kind, ...] = ("age", "backlog")  # what costs more to find than the others do
STATES: tuple[Kind, ...] = tuple(kind for kind in TYPES if kind not in LAGS)
QUIET = timedelta(hours=1)  # without another dead letter: the next one is a first one again
_LASTING = {"deadLetters": QUIET}  # kinds that are found as they happen: over after so long without another


def storage_subject(project: str, limit: Literal["disk", "tables"]) -> Subject:
    """Returns the subject of a storage limit of the installation, for the events of a project."""
    return Subject(project, "disk", f"{project}/storage/{limit}")


@dataclass(frozen=True, slots=True)
class Found:
    """A condition as it is found.

    `amount`: what grows (1 if it does not); of a kind that happens, how much more since the last time.
    `begins`: False if it is only nearly so: it does not begin, and it does not end either.
    `since`: when it began, if that is known.  `fields` are added to the event's data.
    """

    subject: Subject
    why: str
    amount: int = 1
    begins: bool = True
    since: datetime | None = None
    fields: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReportedCondition:
    """A condition that began at `since`, was last found at `found_at`, and was of `amount` then.

    `gone`: what it was of does not exist any more; its end is not told.
    """

    subject: Subject
    since: datetime
    found_at: datetime
    amount: int
    gone: bool = False


def push_failures_to_report(subscription: str, state: PushState) -> Iterator[Found]:
    """Yield the failures of an endpoint that events are published about; `state` is as of now.

    While pushes are paused none begins or ends.
    """
    project, begins, run = project_of(subscription), not state.paused_reason, state.failures
    if run is not None and run.is_reported:
        yield Found(
            Subject(project, "endpoint", subscription),
            describe_run(run, state.retry_at),
            begins=begins,
            since=run.since,
            fields={"endpointFailure": endpoint_failure_fields(state)},
        )
    for message in state.failing_messages:
        yield Found(
            Subject(project, "message", f"{subscription}/messages/{message.message_id}"),
            describe_failing_message(message),
            begins=begins,
            since=message.since,
            fields={"failingMessage": failing_message_fields(message)},
        )


class Comparison(NamedTuple):
    """The result of a check: events to publish, conditions that hold now, and those that have ended."""

    events: list[Event]
    holds: list[ReportedCondition]
    over: list[Subject]


def compare(reported: Iterable[ReportedCondition], found: Iterable[Found], *, now: datetime) -> Comparison:
    """Compares the conditions that were found with those that were reported."""
    before = {condition.subject: condition for condition in reported}
    comparison = Comparison([], [], [])
    for condition in found:
        _go_on(comparison, before.pop(condition.subject, None), condition, now)
    for left in before.values():
        _not_found(comparison, left, now)
    return comparison


def _go_on(comparison: Comparison, reported: ReportedCondition | None, found: Found, now: datetime) -> None:
    subject = found.subject
    if reported is None:
        if found.begins:
            since = found.since or now
            comparison.holds.append(ReportedCondition(subject, since, now, found.amount))
            comparison.events.append(Event(subject, "begins", found.why, now, since, found.amount, found.fields))
        return
    amount = reported.amount + found.amount if subject.kind in _LASTING else max(reported.amount, found.amount)
    comparison.holds.append(ReportedCondition(subject, reported.since, now, amount))
    if "grows" in TYPES[subject.kind] and len(str(amount)) > len(str(reported.amount)):
        comparison.events.append(Event(subject, "grows", found.why, now, reported.since, amount, found.fields))


def _not_found(comparison: Comparison, reported: ReportedCondition, now: datetime) -> None:
    kind = reported.subject.kind
    if now - reported.found_at < _LASTING.get(kind, timedelta(0)) and not reported.gone:
        return
    comparison.over.append(reported.subject)
    if "ends" in TYPES[kind] and not reported.gone:
        comparison.events.append(Event(reported.subject, "ends", "", now, reported.since, reported.amount))


def event_json(event: Event) -> dict[str, object]:
    """Returns the JSON of an event, which is its message's data, and is stored until it is published."""
    body: dict[str, object] = {
        "type": event.type,
        "project": event.subject.project,
        "subject": event.subject.name,
        "time": format_timestamp(event.occurred_at),
        "since": format_timestamp(event.since),
    }
    if event.why:
        body["reason"] = event.why
    if event.subject.kind == "deadLetters":
        body["count"] = event.amount
    return body | dict(event.fields)


def event_message(event_id: int, body: Mapping[str, object]) -> NewMessage:
    """The message of an event.  One that comes twice, after a crash, has the same `ce-id`."""
    return NewMessage(
        data=json.dumps(body).encode(),
        attributes={
            "ce-specversion": "1.0",
            "ce-id": str(event_id),
            "ce-type": str(body["type"]),
            "ce-source": str(body["project"]),
            "ce-subject": str(body["subject"]),
            "ce-time": str(body["time"]),
            "Content-Type": "application/json",
        },
    )
