"""The calls that list the lag of subscriptions, an extension."""

from datetime import timedelta
from typing import Any

from broker.api.rest.call import Call
from broker.api.rest.codec.lists import decode_page_parameters
from broker.api.rest.codec.resources import encode_resource
from broker.core.lag.lag import NOT_SAMPLED, LagState
from broker.core.resources.pause_rest import pause_json
from broker.features.lag_board.list_page import HELD_BY_NOTHING, LagPage, parse_lag_page
from broker.features.lag_board.sample import LagSample
from broker.features.lag_board.service import LagEntry, LagList, LagService
from broker.model.durations import format_duration
from broker.model.errors import InvalidArgument
from broker.model.push_state import PushState
from broker.model.timestamps import format_timestamp


async def list_lag(service: LagService, call: Call) -> bytes:
    page, fresh = decode_list_lag(call)
    return encode_resource(
        lag_list_json(await service.list_lag(call.name, page, fresh=fresh, hung_up=call.exchange.hung_up))
    )


# --- JSON ---------------------------------------------------------------------------------------------------


def decode_list_lag(call: Call) -> tuple[LagPage, bool]:
    """Decodes the page, and whether its figures are to be computed now.  Raises InvalidArgument."""
    size, token = decode_page_parameters(call.query)
    page = parse_lag_page(
        size, token, order_by=call.query.get("orderBy", ""), filter_text=call.query.get("filter", "")
    )
    fresh = call.query.get("fresh", "false")
    if fresh not in ("true", "false"):
        raise InvalidArgument(f"fresh must be true or false (fresh={fresh[:100]}).")
    return page, fresh == "true"


def lag_list_json(found: LagList) -> dict[str, Any]:
    body: dict[str, Any] = {
        "subscriptions": [lag_json(entry) for entry in found.entries],
        "totalSize": found.total,
    }
    if found.sampled_at is not None:
        body["sampleTime"] = format_timestamp(found.sampled_at)
    return body | ({"nextPageToken": found.next_page_token} if found.next_page_token else {})


def lag_json(entry: LagEntry) -> dict[str, Any]:
    subscription = entry.subscription
    body: dict[str, Any] = {"subscription": subscription.name, "topic": subscription.topic}
    if entry.sample is None:
        body |= {"deliveryState": NOT_SAMPLED, "verdict": "It has not been sampled yet."}
    else:
        body |= _sample_json(entry.sample)
    body["messageRetentionDuration"] = format_duration(subscription.message_retention)
    if subscription.is_push:
        body["push"] = _push_json(entry.push_state)
    if entry.warnings:
        body["warnings"] = list(entry.warnings)
    if subscription.pause is not None:
        body |= {"paused": True, **pause_json(subscription.pause)}
    return body


def _sample_json(sample: LagSample) -> dict[str, Any]:
    body: dict[str, Any] = {}
    oldest = sample.oldest_unacked_at
    if oldest is not None:
        age = max(sample.sampled_at - oldest, timedelta(0))
        body["oldestUndeliveredMessageAge"] = format_duration(age)
        body["oldestUndeliveredPublishTime"] = format_timestamp(oldest)
    body["undeliveredMessages"] = sample.undelivered_messages
    if sample.is_estimated:
        body["undeliveredMessagesEstimated"] = True
    body |= {
        "undeliveredBytesEstimate": sample.undelivered_bytes,
        "outstandingMessages": sample.outstanding_messages,
    }
    if sample.blocked_messages:
        body["blockedMessages"] = sample.blocked_messages
    body["deadLetters"] = sample.dead_letters
    if sample.incoming_rate is not None:
        body["incomingMessagesPerSecond"] = round(sample.incoming_rate, 3)
    if sample.outgoing_rate is not None:
        body["outgoingMessagesPerSecond"] = round(sample.outgoing_rate, 3)
    body["deliveryState"] = sample.state
    if LagState(sample.state) not in HELD_BY_NOTHING:
        body["heldBy"] = sample.state
    return body | sample.details


def _push_json(state: PushState | None) -> dict[str, Any]:
    """Encodes the state of an endpoint.  An endpoint that has never failed has no state (None)."""
    if state is None:
        return {"breaker": "closed"}
    body: dict[str, Any] = {
        "breaker": state.breaker,
        "consecutiveFailures": state.consecutive_failures,
        "outstandingRequests": state.outstanding_requests,
    }
    return body | ({} if state.retry_at is None else {"retryTime": format_timestamp(state.retry_at)})
