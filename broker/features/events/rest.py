"""Reading and changing the settings of a project, an extension."""

from typing import Any

import msgspec

from broker.api.rest.call import Call
from broker.api.rest.codec.requests import decode_request
from broker.api.rest.codec.resources import encode_resource
from broker.features.events.service import EventService


async def get_settings(service: EventService, call: Call) -> bytes:
    return encode_resource(settings_json(call.name, await service.get_event_topic(call.name)))


async def update_settings(service: EventService, call: Call) -> bytes:
    request = decode_update_settings(call.body)
    if request.event_topic is not None:
        await service.set_event_topic(call.name, request.event_topic)
    return await get_settings(service, call)


# --- JSON ---------------------------------------------------------------------------------------------------


class UpdateSettingsRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    event_topic: str | None = None


_update = msgspec.json.Decoder(UpdateSettingsRequest)


def decode_update_settings(body: bytes) -> UpdateSettingsRequest:
    """Raises InvalidArgument."""
    return decode_request(_update, body)


def settings_json(project: str, event_topic: str) -> dict[str, Any]:
    """Encodes the settings of a project.  Without an event topic there is no such field."""
    return {"name": f"{project}/settings"} | ({"eventTopic": event_topic} if event_topic else {})
