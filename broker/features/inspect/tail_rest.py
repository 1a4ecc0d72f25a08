"""REST handler that follows a topic as server-sent events; an extension."""

from collections.abc import Mapping

import msgspec

from broker.api.rest.call import Call
from broker.api.rest.codec.lists import decode_preview_bytes
from broker.api.rest.codec.scalars import parse_timestamp
from broker.api.rest.event_stream import ALIVE, stream_events
from broker.core.log.matched_message import listed_message
from broker.features.inspect.tail_position import parse_position_token
from broker.features.inspect.tail_service import NewMessages, TailOptions, TailService


async def tail_topic(service: TailService, call: Call) -> bytes:
    options = decode_tail(call.query, call.exchange.head.header(b"last-event-id"))
    async with service.tail(call.name, options) as new_messages:
        return await stream_events(call, new_messages, encode_new_messages)


# --- JSON ---------------------------------------------------------------------------------------------------


_encode = msgspec.json.Encoder().encode


def decode_tail(query: Mapping[str, str], last_event_id: bytes) -> TailOptions:
    """Decodes the options of a tail.  Raises InvalidArgument."""
    since = query.get("startTime", query.get("start_time", ""))
    return TailOptions(
        filter=query.get("filter", ""),
        preview_bytes=decode_preview_bytes(query),
        since=parse_timestamp(since, "startTime") if since else None,
        after=parse_position_token(last_event_id.decode("latin-1")) if last_event_id else None,
    )


def encode_new_messages(new_messages: NewMessages) -> bytes:
    """Encodes `message` events with their ids, preceded by a `skipped` event; a comment if there is nothing new."""
    events = []
    if new_messages.skipped:
        skipped = new_messages.skipped_id.encode(), new_messages.skipped
        events.append(b'event: skipped\nid: %b\ndata: {"messages": %d}\n\n' % skipped)
    for id_, message in new_messages.messages:
        events.append(b"event: message\nid: %b\ndata: %b\n\n" % (id_.encode(), _encode(listed_message(message))))
    return b"".join(events) or ALIVE
