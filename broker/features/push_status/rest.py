"""REST handlers of push status, attempts, failures, test pushes and pausing; extensions."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from broker.api.rest.call import Call
from broker.api.rest.codec.lists import decode_page_parameters, encode_list
from broker.api.rest.codec.requests import decode_request
from broker.api.rest.codec.resources import encode_resource
from broker.core.lag.lag import LagState
from broker.core.pushing.endpoint_failure import (
    describe_failing_endpoint,
    describe_late_answers,
    endpoint_failure_fields,
    failing_message_fields,
)
from broker.core.resources.pause_rest import decode_pause, pause_json
from broker.core.resources.pause_service import PauseService
from broker.features.push_status.service import PushService
from broker.model.durations import format_duration
from broker.model.message import NewMessage
from broker.model.pause import Pause
from broker.model.push_config import without_query
from broker.model.push_history import BreakerChange, PushAttempts, parse_push_attempt_page
from broker.model.push_state import PushFailure, PushFailurePage, PushState, PushTest, parse_push_failure_page
from broker.model.subscription import Subscription
from broker.model.timestamps import format_timestamp


async def get_push_status(service: PushService, call: Call) -> bytes:
    subscription, state, now = await service.get_push_status(call.name)
    body = push_status_json(subscription, state, now)
    history = await service.list_breaker_changes(subscription) if "circuitBreaker" in body else ()
    if history:
        body["circuitBreaker"]["history"] = [breaker_change_json(each) for each in history]
    return encode_resource(body)


async def list_push_attempts(service: PushService, call: Call) -> bytes:
    page = parse_push_attempt_page(
        *decode_page_parameters(call.query),
        outcome=call.query.get("outcome", ""),
        since=call.query.get("since", ""),
    )
    attempts, token = await service.list_push_attempts(call.name, page)
    return encode_list("pushAttempts", [push_attempts_json(each) for each in attempts], token)


async def list_push_failures(service: PushService, call: Call) -> bytes:
    page = decode_push_failure_page(call.query)
    failures, token = await service.list_push_failures(call.name, page)
    return encode_list("pushFailures", [push_failure_json(failure) for failure in failures], token)


async def test_push(service: PushService, call: Call) -> bytes:
    test = await service.test_push(call.name, decode_test_push(call.body))
    return encode_resource(push_test_json(test))


async def pause_push(service: PauseService, call: Call) -> bytes:
    await service.pause(call.name, decode_pause(call.body), by=call.caller.member, pushed=True)
    return encode_resource({})


async def resume_push(service: PauseService, call: Call) -> bytes:
    await service.resume(call.name, by=call.caller.member, pushed=True)
    return encode_resource({})


# --- JSON ---------------------------------------------------------------------------------------------------


_TEST = NewMessage(data=b"This is a test.", attributes={"test": "true"})


class TestPushRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    message: NewMessage | None = None


_test_push = msgspec.json.Decoder(TestPushRequest)


def decode_test_push(body: bytes) -> NewMessage:
    """Returns the message to send, which is a standard one if the request has none.  Raises InvalidArgument."""
    return decode_request(_test_push, body).message or _TEST


def push_test_json(test: PushTest) -> dict[str, Any]:
    """Returns the JSON of a test.  It has no `status` if the endpoint did not answer."""
    status = {} if test.status is None else {"status": test.status}
    return {
        "delivered": test.delivered,
        "endpoint": without_query(test.endpoint),
        **status,
        "latency": format_duration(test.latency),
        "detail": test.detail,
    }


def decode_push_failure_page(query: Mapping[str, str]) -> PushFailurePage:
    """Decodes the query parameters of a page.  Raises InvalidArgument."""
    message_id = query.get("messageId", query.get("message_id", ""))
    return parse_push_failure_page(*decode_page_parameters(query), message_id)


def push_status_json(subscription: Subscription, state: PushState | None, now: datetime) -> dict[str, Any]:
    """Returns the JSON of the push state of a subscription at the time `now`, including zero counts.

    A subscription without push only has its `state`.
    """
    if not subscription.is_push:
        other = "EXPORT" if subscription.export else "PULL"
        return {"state": "DETACHED" if subscription.detached else other}
    if state is None:
        return {"state": "ACTIVE", "circuitBreaker": {"state": "CLOSED", "consecutiveFailures": 0}}
    body: dict[str, Any] = {"state": "ACTIVE"}
    if state.paused_reason:
        body = {"state": "PAUSED", **pause_json(subscription.pause or Pause(state.paused_reason))}
    elif state.is_failing(now):
        body = {"state": "FAILING", **endpoint_failure_json(state)}
    body["circuitBreaker"] = {
        "state": state.breaker.upper(),
        "consecutiveFailures": state.consecutive_failures,
        "changeTime": format_timestamp(state.changed_at),
    }
    body |= {"window": state.window, "outstandingRequests": state.outstanding_requests}
    if state.retry_at is not None:
        body["retryTime"] = format_timestamp(state.retry_at)
    if state.waits_since is not None and not state.paused_reason:
        body["waitsForSlotsSince"] = format_timestamp(state.waits_since)
    late = state.late_answers_at(subscription.ack_deadline_seconds)
    if late is not None:
        body["lateAnswers"] = {
            "startTime": format_timestamp(late.since),
            "lastTime": format_timestamp(late.last_at),
            "requests": late.requests,
            "lastLatency": format_duration(late.latency),
            "verdict": describe_late_answers(late, deadline_seconds=subscription.ack_deadline_seconds),
        }
    if state.failing_messages:
        body["failingMessages"] = [failing_message_fields(message) for message in state.failing_messages]
    return body


def endpoint_failure_json(state: PushState) -> dict[str, Any]:
    """Returns the JSON that explains why a failing endpoint holds its messages; all reports share it."""
    return {
        "deliveryState": LagState.ENDPOINT_FAILING,
        "verdict": describe_failing_endpoint(state),
        "endpointFailure": endpoint_failure_fields(state),
    }


def push_attempts_json(attempts: PushAttempts) -> dict[str, Any]:
    return {
        "minuteTime": format_timestamp(attempts.minute),
        "outcome": attempts.outcome,
        "status": attempts.status,
        "requests": str(attempts.requests),
        "averageLatency": format_duration(attempts.latency / attempts.requests),
        "lastMessageId": attempts.last_message_id,
    }


def breaker_change_json(change: BreakerChange) -> dict[str, Any]:
    """Returns the JSON of a change.  It has no `status` and `reason` if no request failed since the
    last success.
    """
    return {
        "changeTime": format_timestamp(change.changed_at),
        "state": change.state.upper(),
        "consecutiveFailures": change.consecutive_failures,
        **({} if change.status is None else {"status": change.status}),
        **({"reason": change.reason} if change.reason else {}),
        "attempts": [push_attempts_json(each) for each in change.attempts],
    }


def push_failure_json(failure: PushFailure) -> dict[str, Any]:
    """Returns the JSON of a failure.  It has no `status` if the endpoint did not answer."""
    body: dict[str, Any] = {
        "failTime": format_timestamp(failure.failed_at),
        "messageId": failure.message_id,
        "deliveryAttempt": failure.delivery_attempt,
        "endpoint": without_query(failure.endpoint),
    }
    if failure.status is not None:
        body["status"] = failure.status
    return body | {"latency": format_duration(failure.latency), "detail": failure.detail}
