"""Messages that wait for their time; extensions."""

from broker.front.rest.call import Call
from broker.front.rest.codec.lists import encode_list
from broker.front.rest.codec.resources import encode_resource
from broker.front.rest.codec.schedule import (
    decode_deliver_time,
    decode_schedule_page,
    scheduled_json,
    scheduled_list_json,
)


async def list_scheduled(call: Call) -> bytes:
    page = decode_schedule_page(call.query)
    found, token = await call.services.acting.schedule.list_scheduled(call.name, page)
    return encode_list("scheduledMessages", scheduled_list_json(found), token)


async def get_scheduled(call: Call) -> bytes:
    topic, _, message_id = call.name.rpartition("/scheduled/")
    return encode_resource(scheduled_json(await call.services.acting.schedule.get_scheduled(topic, message_id)))


async def update_scheduled(call: Call) -> bytes:
    topic, _, message_id = call.name.rpartition("/scheduled/")
    due_at = decode_deliver_time(call.body, call.update_mask)
    moved = await call.services.acting.schedule.move_scheduled(topic, message_id, due_at)
    return encode_resource(scheduled_json(moved))


async def cancel_scheduled(call: Call) -> bytes:
    topic, _, message_id = call.name.rpartition("/scheduled/")
    await call.services.acting.schedule.cancel_scheduled(topic, message_id, by=call.caller.member)
    return encode_resource({})
