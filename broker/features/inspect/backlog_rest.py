"""REST handler that lists the backlog of a subscription with the states of its messages, an extension."""

from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

import msgspec

from broker.api.rest.call import Call
from broker.api.rest.codec.lists import decode_page_parameters, decode_preview_bytes
from broker.api.rest.codec.resources import encode_resource
from broker.core.backlog.delivery_state import DeliveryState
from broker.features.inspect.backlog_page import BacklogList, BacklogMessage, BacklogPage, parse_backlog_page
from broker.features.inspect.backlog_service import BacklogMessageService
from broker.model.message import PubsubMessage
from broker.model.message_id import id_of, message_id
from broker.model.page import page_token
from broker.model.timestamps import format_timestamp


async def list_messages(service: BacklogMessageService, call: Call) -> bytes:
    page = decode_backlog_page(call.query)
    found = await service.list_messages(call.name, page, hung_up=call.exchange.hung_up)
    return encode_resource(backlog_list_json(found))


# --- JSON ---------------------------------------------------------------------------------------------------


_TIMES = {DeliveryState.OUTSTANDING: "ackDeadline", DeliveryState.RETRYING: "retryTime"}


def decode_backlog_page(query: Mapping[str, str]) -> BacklogPage:
    """Decodes the query parameters of a page.  Raises InvalidArgument."""
    texts = {name: query.get(name, "") for name in ("state", "filter", "contains")}
    return parse_backlog_page(
        *decode_page_parameters(query),
        states=texts["state"],
        filter_text=texts["filter"],
        contains=texts["contains"],
        preview_bytes=decode_preview_bytes(query),
    )


def backlog_list_json(found: BacklogList) -> dict[str, Any]:
    """Returns the JSON of a page.  Its `scannedMessageCount` is that of this page alone: callers add up pages."""
    body: dict[str, Any] = {
        "messages": [_message_json(m) for m in found.found],
        "scannedMessageCount": found.scanned,
    }
    return body | ({} if found.rest is None else {"nextPageToken": page_token(*astuple(found.rest))})


def _message_json(message: BacklogMessage) -> dict[str, Any]:
    body: dict[str, Any] = {
        "message": PubsubMessage(
            data=message.data,
            attributes=None if message.attributes == "{}" else msgspec.Raw(message.attributes.encode()),
            message_id=id_of(message.shard_id, message),
            publish_time=format_timestamp(message.publish_time),
            ordering_key=message.ordering_key or "",
        ),
        "dataSize": message.data_size,
        "state": message.state,
        "deliveryAttempt": message.attempt_number,
    }
    if message.delivered_at is not None:
        body["deliverTime"] = format_timestamp(message.delivered_at)
    if message.at is not None:
        body[_TIMES[message.state]] = format_timestamp(message.at)
    if message.held_by is not None:
        body["blockedByMessageId"] = message_id(message.shard_id, message.held_by)
    return body
