"""Messages that wait for their time; extensions."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from broker.domain.delay import ScheduledMessage
from broker.domain.errors import InvalidArgument
from broker.domain.field_mask import parse_field_mask, unknown_path
from broker.domain.message_id import message_id
from broker.domain.schedule_page import SchedulePage, parse_schedule_page
from broker.domain.timestamps import format_timestamp, parse_timestamp
from broker.front.rest.codec.lists import decode_page_parameters
from broker.front.rest.codec.requests import decode_request


class UpdateScheduledRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    deliver_time: str = ""


_body = msgspec.json.Decoder(UpdateScheduledRequest)


def decode_schedule_page(query: Mapping[str, str]) -> SchedulePage:
    """Raises InvalidArgument."""
    return parse_schedule_page(*decode_page_parameters(query))


def decode_deliver_time(body: bytes, update_mask: str | None) -> datetime:
    """When a message is to come instead.  Raises InvalidArgument."""
    for path in parse_field_mask(update_mask or ""):
        if path != "deliver_time":
            raise unknown_path(path, "ScheduledMessage", "Only deliver_time can be changed.")
    text = decode_request(_body, body).deliver_time
    if not text:
        raise InvalidArgument("deliverTime must be given: when the message is to come.")
    return parse_timestamp(text, "deliverTime")


def scheduled_json(message: ScheduledMessage) -> dict[str, Any]:
    """A message of Google's without its publish time, which it does not have yet."""
    body: dict[str, Any] = {
        "messageId": message_id(message.shard_id, message.id_seq),
        "deliverTime": format_timestamp(message.due_at),
        "createTime": format_timestamp(message.accepted_at),
    }
    if message.ordering_key:
        body["orderingKey"] = message.ordering_key
    if message.attributes is not None:
        body["attributes"] = msgspec.Raw(message.attributes.encode())
    if message.data:
        body["data"] = message.data
    return body


def scheduled_list_json(messages: Sequence[ScheduledMessage]) -> list[dict[str, Any]]:
    return [scheduled_json(message) for message in messages]
