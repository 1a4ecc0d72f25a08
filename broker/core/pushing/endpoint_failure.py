"""Descriptions of a failing push endpoint for the log, events, the API and the commands."""

from datetime import datetime

from broker.core.pushing.health.fault import Fault, fault_of
from broker.model.durations import format_units
from broker.model.push_state import FailingMessage, FailureRun, LateAnswers, PushState
from broker.model.timestamps import format_timestamp

Fields = dict[str, object]  # of JSON


def describe_failing_endpoint(state: PushState) -> str:
    """Describe an endpoint that fails in one sentence; `state` is as of now."""
    run, retry = state.failures, _next_attempt(state.retry_at)
    if run is not None:
        rejected = state.consecutive_failures == 1 and fault_of(run.status) is Fault.REJECTED
        of_one = ", all of one message, which it may refuse alone" if rejected else ""
        parts = [f"{_requests(run)} since {format_timestamp(run.since)}{of_one}", _last(run.status, run.reason)]
    else:
        failed = f"{state.consecutive_failures:,} different messages have failed without a success"
        parts = [f"{failed} by {format_timestamp(state.changed_at)}"]
    breaker = "" if state.breaker == "closed" else f"its circuit breaker is {state.breaker.replace('_', ' ')}"
    return f"The endpoint fails: {_join(*parts, breaker, retry)}."


def describe_late_answers(late: LateAnswers, *, deadline_seconds: int) -> str:
    """Describe an endpoint that accepts requests after their ack deadline, and what to do about it."""
    requests = "1 request was" if late.requests == 1 else f"{late.requests:,} requests were"
    last, after = format_timestamp(late.last_at), format_units(late.latency, most=1)
    return (
        f"The endpoint answers too late: {requests} accepted after the ack deadline, which is {deadline_seconds}s, "
        f"since {format_timestamp(late.since)}, the last one at {last} after {after}. "
        f"Their messages are pushed more than once. Set an ack deadline above {after}, or answer sooner."
    )


def describe_run(run: FailureRun, retry_at: datetime | None) -> str:
    """Describe failures since the last success, without since when, and the next attempt if its time is known."""
    return _join(_requests(run), _last(run.status, run.reason), _next_attempt(retry_at))


def describe_failing_message(message: FailingMessage) -> str:
    """Describe the failures of a message, without since when."""
    failures = f"{message.failures:,} failed attempts while other messages are delivered"
    return _join(failures, _last(message.status, message.reason))


def endpoint_failure_fields(state: PushState) -> Fields:
    """The same for programs: the fields of `endpointFailure` in the API and in events."""
    retry = {} if state.retry_at is None else {"retryTime": format_timestamp(state.retry_at)}
    run = state.failures
    if run is None:
        return {"failedRequests": state.consecutive_failures, **retry}
    since = {"startTime": format_timestamp(run.since), "failedRequests": run.requests}
    return {**since, **_cause(run.status, run.reason), **retry}


def failing_message_fields(message: FailingMessage) -> Fields:
    """The fields of an element of `failingMessages` in the API, and of an event."""
    since = {"startTime": format_timestamp(message.since), "failedAttempts": message.failures}
    return {"messageId": message.message_id, **since, **_cause(message.status, message.reason)}


def _cause(status: int | None, reason: str) -> Fields:
    return ({} if status is None else {"status": status}) | ({"reason": reason} if reason else {})


def _requests(run: FailureRun) -> str:
    requests = "1 request has failed" if run.requests == 1 else f"{run.requests:,} requests have failed"
    return f"{requests} without a success"


def _last(status: int | None, reason: str) -> str:
    if status is not None:
        reason = f"status {status} ({reason})" if reason else f"status {status}"
    return f"the last one: {reason}"


def _next_attempt(retry_at: datetime | None) -> str:
    return "" if retry_at is None else f"the next attempt is at {format_timestamp(retry_at)}"


def _join(*parts: str) -> str:
    return "; ".join(filter(None, parts))
