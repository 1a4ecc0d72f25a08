"""How far behind subscriptions are, an extension."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from broker.api.rest.call import Call
from broker.api.rest.codec.lists import decode_list_size
from broker.api.rest.codec.resources import encode_resource
from broker.core.lag.lag import KeyHolder, Lag
from broker.core.pushing.endpoint_failure import endpoint_failure_fields
from broker.core.resources.pause_rest import pause_json
from broker.features.inspect.lag_service import LagService
from broker.model.durations import format_duration
from broker.model.timestamps import format_timestamp


async def list_lag(service: LagService, call: Call) -> bytes:
    lags, total, now = await service.list_lag(
        call.name, page_size=decode_list_size(call.query), hung_up=call.exchange.hung_up
    )
    return encode_resource(lag_json(lags, total, now))


# --- JSON ---------------------------------------------------------------------------------------------------


def lag_json(lags: Sequence[Lag], total: int, now: datetime) -> dict[str, Any]:
    return {"subscriptions": [_lag(lag, now) for lag in lags], "totalSize": total}


def _lag(lag: Lag, now: datetime) -> dict[str, Any]:
    body: dict[str, Any] = {"subscription": lag.subscription.name, "topic": lag.subscription.topic}
    if lag.oldest is not None:
        body["oldestUndeliveredMessageAge"] = format_duration(max(now - lag.oldest, timedelta(0)))
        body["oldestUndeliveredPublishTime"] = format_timestamp(lag.oldest)
    body["undeliveredMessages"] = lag.undelivered
    if lag.is_estimated:
        body["undeliveredMessagesEstimated"] = True
    body |= {"undeliveredBytesEstimate": lag.undelivered_bytes, "outstandingMessages": lag.outstanding}
    if lag.held:
        body["blockedMessages"] = lag.held
    body |= {"deliveryState": lag.state, "verdict": lag.verdict}
    if lag.endpoint is not None:
        body["endpointFailure"] = endpoint_failure_fields(lag.endpoint)
    if lag.warnings:
        body["warnings"] = list(lag.warnings)
    if lag.subscription.pause is not None:
        body |= {"paused": True, **pause_json(lag.subscription.pause)}
    return body | ({} if lag.holder is None else {"blockedKey": _holder(lag.holder)})


def _holder(holder: KeyHolder) -> dict[str, Any]:
    return {
        "orderingKey": holder.ordering_key,
        "messageId": holder.message_id,
        "deliveryAttempt": holder.attempt_number,
        "deliverTime": format_timestamp(holder.delivered_at),
    }
