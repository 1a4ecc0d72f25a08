"""Listing, moving and cancelling scheduled messages; extensions."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec

from broker.api.rest.call import Call
from broker.api.rest.codec.lists import decode_page_parameters, decode_preview_bytes, encode_list
from broker.api.rest.codec.requests import decode_request
from broker.api.rest.codec.resources import encode_resource
from broker.api.rest.previews import done_or_preview, safeguards_of_query
from broker.core.viewing.message_view import MessageView, Shown
from broker.core.viewing.message_views import MessageViews
from broker.features.delayed.delay import ScheduledMessage
from broker.features.delayed.page import SchedulePage, parse_schedule_page
from broker.features.delayed.service import ScheduleService
from broker.model.errors import InvalidArgument
from broker.model.field_mask import parse_field_mask, unknown_path
from broker.model.message_id import message_id
from broker.model.message_preview import WHOLE
from broker.model.timestamps import format_timestamp, parse_timestamp


async def list_scheduled(service: ScheduleService, views: MessageViews, call: Call) -> bytes:
    page = decode_schedule_page(call.query)
    view = await views.of(call, call.name)
    read = replace(page, preview_bytes=view.read_bytes(page.preview_bytes))
    found, token = await service.list_scheduled(call.name, read)
    listed = [await _as_seen(view, each, page.preview_bytes) for each in found]
    return encode_list("scheduledMessages", listed, token)


async def get_scheduled(service: ScheduleService, views: MessageViews, call: Call) -> bytes:
    topic, _, message_id = call.name.rpartition("/scheduled/")
    view = await views.of(call, topic)
    return encode_resource(await _as_seen(view, await service.get_scheduled(topic, message_id), WHOLE))


async def update_scheduled(service: ScheduleService, views: MessageViews, call: Call) -> bytes:
    topic, _, message_id = call.name.rpartition("/scheduled/")
    due_at = decode_deliver_time(call.body, call.update_mask)
    moved = await service.move_scheduled(topic, message_id, due_at)
    return encode_resource(await _as_seen(await views.of_permitted(call, topic), moved, WHOLE))


async def cancel_scheduled(service: ScheduleService, call: Call) -> bytes:
    topic, _, message_id = call.name.rpartition("/scheduled/")
    safeguards = safeguards_of_query(call)
    cancel = service.cancel_scheduled
    return await done_or_preview(
        call, await cancel(topic, message_id, by=call.caller.member, safeguards=safeguards)
    )


async def _as_seen(view: MessageView, message: ScheduledMessage, preview_bytes: int) -> dict[str, Any]:
    shown = await view.show(message.attributes or "{}", message.data, message.data_size, preview_bytes)
    return scheduled_json(message, shown)


# --- JSON ---------------------------------------------------------------------------------------------------


class UpdateScheduledRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    deliver_time: str = ""


_body = msgspec.json.Decoder(UpdateScheduledRequest)


def decode_schedule_page(query: Mapping[str, str]) -> SchedulePage:
    """Raises InvalidArgument."""
    return parse_schedule_page(*decode_page_parameters(query), preview_bytes=decode_preview_bytes(query, default=0))


def decode_deliver_time(body: bytes, update_mask: str | None) -> datetime:
    """Decodes the new time at which a message is to be delivered.  Raises InvalidArgument."""
    for path in parse_field_mask(update_mask or ""):
        if path != "deliver_time":
            raise unknown_path(path, "ScheduledMessage", "Only deliver_time can be changed.")
    text = decode_request(_body, body).deliver_time
    if not text:
        raise InvalidArgument("deliverTime must be given: when the message is to come.")
    return parse_timestamp(text, "deliverTime")


def scheduled_json(message: ScheduledMessage, shown: Shown) -> dict[str, Any]:
    """A message of Google's without its publish time, which it does not have yet."""
    body: dict[str, Any] = {
        "messageId": message_id(message.shard_id, message.id_seq),
        "deliverTime": format_timestamp(message.due_at),
        "createTime": format_timestamp(message.accepted_at),
        "dataSize": message.data_size,
    }
    if message.ordering_key:
        body["orderingKey"] = message.ordering_key
    if message.attributes is not None:
        body["attributes"] = msgspec.Raw(shown.attributes.encode())
    if shown.data:
        body["data"] = shown.data
    if shown.masked is not None:
        body["masked"] = shown.masked
    return body
