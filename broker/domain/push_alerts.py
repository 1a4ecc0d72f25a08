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
    project, begins = project_of(subscription), not state.paused_reason
    if state.failures is not None and state.failures.is_reported:
        fields = {"endpointFailure": endpoint_failure_fields(state)}
        why = describe_run(state.failures, state.retry_at)
        yield Found(Subject(project, "endpoint", subscription), why, begins=begins, fields=fields)
    for message in state.failing_messages:
        name = f"{subscription}/messages/{message.message_id}"
        fields = {"failingMessage": failing_message_fields(message)}
        why = describe_failing_message(message)
        yield Found(Subject(project, "message", name), why, begins=begins, fields=fields)
