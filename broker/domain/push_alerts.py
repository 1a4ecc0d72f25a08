"""Which failures of pushes are published as events (F4)."""

from collections.abc import Iterator

from broker.domain.endpoint_failure import (
    describe_failing_message,
    describe_run,
    endpoint_failure_fields,
    failing_message_fields,
)
from broker.domain.event import Found, Subject
from broker.domain.names import project_of
from broker.domain.push_state import PushState


def push_failures_to_tell(subscription: str, state: PushState) -> Iterator[Found]:
    """The conditions of an endpoint, whose state is as of now.  While pushes are paused none begins or ends."""
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
