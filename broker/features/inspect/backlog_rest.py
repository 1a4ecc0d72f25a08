"""REST handler that lists the backlog of a subscription with the states of its messages, an extension."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from typing import Any

from broker.api.rest.call import Call
from broker.api.rest.codec.lists import decode_page_parameters, decode_preview_bytes
from broker.api.rest.codec.resources import encode_resource
from broker.core.backlog.delivery_state import DeliveryState
from broker.core.viewing.message_view import Shown
from broker.core.viewing.message_views import MessageViews
from broker.core.viewing.seen_messages import raw_attributes
from broker.features.inspect.backlog_page import BacklogList, BacklogMessage, BacklogPage, parse_backlog_page
from broker.features.inspect.backlog_service import BacklogMessageService
from broker.model.message import PubsubMessage
from broker.model.message_id import id_of, message_id
from broker.model.page import page_token
from broker.model.timestamps import format_timestamp


async def list_messages(service: BacklogMessageService, views: MessageViews, call: Call) -> bytes:
    page = decode_backlog_page(call.query)
    view = await views.of(call, call.name)
    view.check_search(filter_text=page.filter, contains=page.contains)
    read = replace(page, preview_bytes=view.read_bytes(page.preview_bytes))
    found = await service.list_messages(call.name, read, hung_up=call.exchange.hung_up)
    shown = [await view.show(m.attributes, m.data, m.data_size, page.preview_bytes) for m in found.found]
    return encode_resource(backlog_list_json(found, shown))


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


def backlog_list_json(found: BacklogList, shown: Sequence[Shown]) -> dict[str, Any]:
    """Returns the JSON of a page.  Its `scannedMessageCount` is that of this page alone: callers add up pages."""
    body: dict[str, Any] = {
        "messages": [_message_json(*each) for each in zip(found.found, shown, strict=True)],
        "scannedMessageCount": found.scanned,
    }
    return body | ({} if found.rest is None else {"nextPageToken": page_token(*astuple(found.rest))})


def _message_json(message: BacklogMessage, shown: Shown) -> dict[str, Any]:
    body: dict[str, Any] = {
        "message": PubsubMessage(
            data=shown.data,
            attributes=raw_attributes(shown),
            message_id=id_of(message.shard_id, message),
            publish_time=format_timestamp(message.publish_time),
            ordering_key=message.ordering_key or "",
        ),
        "dataSize": message.data_size,
        "state": message.state,
        "deliveryAttempt": message.attempt_number,
    }
    if shown.masked is not None:
        body["masked"] = shown.masked
    if message.delivered_at is not None:
        body["deliverTime"] = format_timestamp(message.delivered_at)
    if message.at is not None:
        body[_TIMES[message.state]] = format_timestamp(message.at)
    if message.held_by is not None:
        body["blockedByMessageId"] = message_id(message.shard_id, message.held_by)
    return body
