"""Schedules: messages that are published again and again; extensions (J2)."""

from broker.domain.page import parse_page
from broker.front.rest.call import Call
from broker.front.rest.codec.lists import decode_page_parameters, encode_list
from broker.front.rest.codec.resources import encode_resource
from broker.front.rest.codec.schedules import (
    decode_history_size,
    decode_schedule,
    decode_tick_count,
    schedule_json,
    tick_json,
    times_json,
)


async def put_schedule(call: Call) -> bytes:
    definition = decode_schedule(call.body)
    if call.gate is not None:  # the schedule publishes for whoever makes it
        await call.gate.allow(call.caller, "Publisher.Publish", definition.topic)
    schedules = call.services.acting.schedules
    return encode_resource(
        schedule_json(await schedules.put_schedule(call.name, definition, created_by=call.caller.member))
    )


async def get_schedule(call: Call) -> bytes:
    return encode_resource(schedule_json(await call.services.acting.schedules.get_schedule(call.name)))


async def list_schedules(call: Call) -> bytes:
    page = parse_page(*decode_page_parameters(call.query))
    schedules, token = await call.services.acting.schedules.list_schedules(call.name, page)
    return encode_list("schedules", [schedule_json(schedule) for schedule in schedules], token)


async def delete_schedule(call: Call) -> bytes:
    await call.services.acting.schedules.delete_schedule(call.name)
    return encode_resource({})


async def pause_schedule(call: Call) -> bytes:
    return encode_resource(schedule_json(await call.services.acting.schedules.pause_schedule(call.name)))


async def resume_schedule(call: Call) -> bytes:
    return encode_resource(schedule_json(await call.services.acting.schedules.resume_schedule(call.name)))


async def run_schedule(call: Call) -> bytes:
    return encode_resource(tick_json(await call.services.acting.schedules.run_schedule(call.name)))


async def list_next_ticks(call: Call) -> bytes:
    count = decode_tick_count(call.query)
    return encode_list("times", times_json(await call.services.acting.schedules.next_ticks(call.name, count)), "")


async def list_schedule_ticks(call: Call) -> bytes:
    size = decode_history_size(call.query)
    records = await call.services.acting.schedules.list_ticks(call.name, size)
    return encode_list("ticks", [tick_json(record) for record in records], "")
