"""The calls about events: the settings of a project, its last events, and marks; extensions."""

from typing import Any

import msgspec

from broker.api.rest.call import Call
from broker.api.rest.codec.lists import decode_page_parameters, encode_list
from broker.api.rest.codec.requests import decode_request
from broker.api.rest.codec.resources import encode_resource
from broker.features.events.kept_rows import KeptEvent
from broker.features.events.service import EventService


async def get_settings(service: EventService, call: Call) -> bytes:
    return encode_resource(settings_json(call.name, await service.get_event_topic(call.name)))


async def update_settings(service: EventService, call: Call) -> bytes:
    request = decode_update_settings(call.body)
    if request.event_topic is not None:
        await service.set_event_topic(call.name, request.event_topic)
    return await get_settings(service, call)


async def list_events(service: EventService, call: Call) -> bytes:
    size, token = decode_page_parameters(call.query)
    found, token = await service.list_events(
        call.name,
        page_size=size,
        page_token=token,
        order_by=call.query.get("orderBy", ""),
        filter_text=call.query.get("filter", ""),
    )
    return encode_list("events", [kept_event_json(call.name, event) for event in found], token)


async def create_mark(service: EventService, call: Call) -> bytes:
    request = decode_create_mark(call.body)
    mark = await service.create_mark(call.name, request.text, request.labels, by=call.caller.member)
    return encode_resource(kept_event_json(call.name, mark))


# --- JSON ---------------------------------------------------------------------------------------------------


class UpdateSettingsRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    event_topic: str | None = None


class CreateMarkRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    text: str = ""
    labels: dict[str, str] = {}


_create_mark = msgspec.json.Decoder(CreateMarkRequest)
_update = msgspec.json.Decoder(UpdateSettingsRequest)


def decode_update_settings(body: bytes) -> UpdateSettingsRequest:
    """Raises InvalidArgument."""
    return decode_request(_update, body)


def decode_create_mark(body: bytes) -> CreateMarkRequest:
    """Raises InvalidArgument."""
    return decode_request(_create_mark, body)


def kept_event_json(project: str, event: KeptEvent) -> dict[str, Any]:
    """Encodes an event or a mark; the last part of its name is the `ce-id` of the message of an event."""
    return {"name": f"{project}/events/{event.event_id}", **event.body}


def settings_json(project: str, event_topic: str) -> dict[str, Any]:
    """Encodes the settings of a project.  Without an event topic there is no such field."""
    return {"name": f"{project}/settings"} | ({"eventTopic": event_topic} if event_topic else {})
