"""A project's settings; an extension."""

from broker.front.rest.call import Call
from broker.front.rest.codec.resources import encode_resource
from broker.front.rest.codec.settings import decode_update_settings, settings_json


async def get_settings(call: Call) -> bytes:
    return encode_resource(settings_json(call.name, await call.services.events.get_event_topic(call.name)))


async def update_settings(call: Call) -> bytes:
    request = decode_update_settings(call.body)
    if request.event_topic is not None:
        await call.services.events.set_event_topic(call.name, request.event_topic)
    return await get_settings(call)
