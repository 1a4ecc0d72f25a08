"""Schedules, which publish a message again and again; extensions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec

from broker.api import permissions
from broker.api.rest.call import Call
from broker.api.rest.codec.lists import decode_list_size, decode_page_parameters, encode_list
from broker.api.rest.codec.requests import decode_request
from broker.api.rest.codec.resources import encode_resource
from broker.api.rest.codec.scalars import parse_duration
from broker.api.rest.previews import done_or_preview, safeguards_of_query
from broker.core.viewing.message_views import MessageViews
from broker.features.schedules.schedule import (
    KEPT_TICKS,
    MAX_REPORTED_TICKS,
    Definition,
    Missed,
    Schedule,
    TickRecord,
)
from broker.features.schedules.service import SchedulesService
from broker.model.durations import format_duration
from broker.model.errors import InvalidArgument
from broker.model.message import NewMessage
from broker.model.message_preview import WHOLE
from broker.model.page import parse_page
from broker.model.timestamps import format_timestamp, parse_timestamp


async def put_schedule(service: SchedulesService, views: MessageViews, call: Call) -> bytes:
    definition, keeps_message = decode_schedule(call.body)
    if call.gate is not None:  # the schedule publishes for whoever makes it
        await call.gate.allow(call.caller, permissions.PUBLISH, definition.topic)
    schedule = await service.put_schedule(
        call.name, definition, created_by=call.caller.member, keeps_message=keeps_message
    )
    return await _shown(views, call, schedule) if keeps_message else encode_resource(schedule_json(schedule))


async def get_schedule(service: SchedulesService, views: MessageViews, call: Call) -> bytes:
    return await _shown(views, call, await service.get_schedule(call.name))


async def list_schedules(service: SchedulesService, views: MessageViews, call: Call) -> bytes:
    page = parse_page(*decode_page_parameters(call.query))
    schedules, token = await service.list_schedules(call.name, page)
    return encode_list("schedules", [schedule_json(await _as_seen(views, call, each)) for each in schedules], token)


async def delete_schedule(service: SchedulesService, call: Call) -> bytes:
    return await done_or_preview(call, await service.delete_schedule(call.name, safeguards_of_query(call)))


async def pause_schedule(service: SchedulesService, views: MessageViews, call: Call) -> bytes:
    return await _shown(views, call, await service.pause_schedule(call.name, by=call.caller.member))


async def resume_schedule(service: SchedulesService, views: MessageViews, call: Call) -> bytes:
    return await _shown(views, call, await service.resume_schedule(call.name))


async def run_schedule(service: SchedulesService, call: Call) -> bytes:
    return encode_resource(tick_json(await service.run_schedule(call.name)))


async def list_next_ticks(service: SchedulesService, call: Call) -> bytes:
    count = decode_tick_count(call.query)
    return encode_list("times", times_json(await service.next_ticks(call.name, count)), "")


async def list_schedule_ticks(service: SchedulesService, call: Call) -> bytes:
    size = decode_history_size(call.query)
    records = await service.list_ticks(call.name, size)
    return encode_list("ticks", [tick_json(record) for record in records], "")


async def _shown(views: MessageViews, call: Call, schedule: Schedule) -> bytes:
    return encode_resource(schedule_json(await _as_seen(views, call, schedule)))


async def _as_seen(views: MessageViews, call: Call, schedule: Schedule) -> Schedule:
    """The schedule with the message as the caller may see messages of its topic."""
    definition = schedule.definition
    view = await views.of_permitted(call, definition.topic)
    attributes = msgspec.json.encode(definition.attributes).decode()
    shown = await view.show(attributes, definition.data, len(definition.data), WHOLE)
    if shown.masked is None:
        return schedule
    seen = msgspec.json.decode(shown.attributes, type=dict[str, str])
    return replace(schedule, definition=msgspec.structs.replace(definition, data=shown.data, attributes=seen))


# --- JSON ---------------------------------------------------------------------------------------------------


class PutScheduleRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    topic: str = ""
    message: NewMessage | None = None
    template: NewMessage | None = None
    schedule: str = ""
    interval: str = ""
    time_zone: str = "UTC"
    start: str = ""
    end: str = ""
    missed: str = "ONE"
    name: object = None  # in the path


_decoder = msgspec.json.Decoder(PutScheduleRequest)


def decode_schedule(body: bytes) -> tuple[Definition, bool]:
    """Decodes a definition, and whether it has no message, so that the schedule keeps its own.

    Raises InvalidArgument.
    """
    request = decode_request(_decoder, body)
    if request.message is not None and request.template is not None:
        raise InvalidArgument("One of message and template can be given, not both.")
    message = request.message or request.template or NewMessage()
    if request.schedule and request.interval:
        raise InvalidArgument("Only one of schedule and interval can be given.")
    if request.missed not in Missed.__members__:
        raise InvalidArgument(f"missed must be one of {', '.join(Missed)} (missed={request.missed[:100]!r}).")
    definition = Definition(
        topic=request.topic,
        data=message.data,
        attributes=message.attributes,
        ordering_key=message.ordering_key,
        is_template=request.template is not None,
        cron=request.schedule,
        interval_seconds=_seconds(request.interval) if request.interval else 0,
        time_zone=request.time_zone,
        start=parse_timestamp(request.start, "start") if request.start else None,
        end=parse_timestamp(request.end, "end") if request.end else None,
        missed=Missed(request.missed),
    )
    return definition, request.message is None and request.template is None


def _seconds(text: str) -> int:
    interval = parse_duration(text, "interval")
    if interval <= timedelta(0) or interval % timedelta(seconds=1):
        raise InvalidArgument(f"interval must be whole seconds, at least one (interval={text[:100]!r}).")
    return interval // timedelta(seconds=1)


def decode_tick_count(query: Mapping[str, str]) -> int:
    """Decodes the number of future ticks to list.  Raises InvalidArgument."""
    return min(decode_list_size(query), MAX_REPORTED_TICKS)


def decode_history_size(query: Mapping[str, str]) -> int:
    """Decodes the number of entries of a history to list.  Raises InvalidArgument."""
    return min(decode_list_size(query), KEPT_TICKS)


def schedule_json(schedule: Schedule) -> dict[str, Any]:
    """Encodes a schedule, with its definition and its state."""
    definition = schedule.definition
    message: dict[str, Any] = {"data": definition.data} if definition.data else {}
    if definition.attributes:
        message["attributes"] = definition.attributes
    if definition.ordering_key:
        message["orderingKey"] = definition.ordering_key
    body: dict[str, Any] = {
        "name": schedule.name,
        "topic": definition.topic,
        "template" if definition.is_template else "message": message,
    }
    if definition.cron:
        body |= {"schedule": definition.cron, "timeZone": definition.time_zone}
    else:
        body["interval"] = format_duration(timedelta(seconds=definition.interval_seconds))
    times = {
        "start": definition.start,
        "end": definition.end,
        "nextTime": schedule.next_at,
        "createTime": schedule.created_at,
        "updateTime": schedule.updated_at,
        "pauseTime": schedule.paused_at,
    }
    body |= {"missed": definition.missed, "state": schedule.state, "ticks": str(schedule.ticks)}
    body |= {name: format_timestamp(moment) for name, moment in times.items() if moment is not None}
    if schedule.last_outcome:
        body["lastOutcome"] = schedule.last_outcome
    if schedule.created_by:
        body["createdBy"] = schedule.created_by
    if schedule.paused_by:
        body["pausedBy"] = schedule.paused_by
    return body


def tick_json(record: TickRecord) -> dict[str, Any]:
    body: dict[str, Any] = {
        "number": str(record.number),
        "runTime": format_timestamp(record.ran_at),
        "outcome": record.outcome,
    }
    if record.planned_at is None:
        body["byHand"] = True
    else:
        body["tickTime"] = format_timestamp(record.planned_at)
    if record.reason:
        body["reason"] = record.reason
    if record.message_id:
        body["messageId"] = record.message_id
    return body


def times_json(times: Sequence[datetime]) -> list[str]:
    return [format_timestamp(moment) for moment in times]
