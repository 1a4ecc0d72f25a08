"""Following a topic as Server-Sent Events; an extension."""

import msgspec

from broker.api.rest.call import Call
from broker.api.rest.event_stream import ALIVE, stream_events
from broker.core.log.matched_message import matched_message
from broker.features.inspect.tail_service import NewMessages, TailService


async def tail_topic(service: TailService, call: Call) -> bytes:
    async with service.tail(call.name, call.query.get("filter", "")) as new_messages:
        return await stream_events(call, new_messages, encode_new_messages)


# --- JSON ---------------------------------------------------------------------------------------------------


_encode = msgspec.json.Encoder().encode


def encode_new_messages(new_messages: NewMessages) -> bytes:
    """`message` events with their ids, and `skipped` events; a comment if there are none."""
    events = [b'event: skipped\ndata: {"messages": %d}\n\n' % new_messages.skipped] if new_messages.skipped else []
    for message in new_messages.messages:
        body = matched_message(message)
        events.append(b"event: message\nid: %b\ndata: %b\n\n" % (body.message_id.encode(), _encode(body)))
    return b"".join(events) or ALIVE
