"""Following a topic as Server-Sent Events; an extension."""

import msgspec

from broker.api.rest.call import Call
from broker.api.rest.event_stream import ALIVE, stream_events
from broker.core.log.matched_message import matched_message
from broker.features.inspect.tail_service import News, TailService


async def tail_topic(service: TailService, call: Call) -> bytes:
    async with service.tail(call.name, call.query.get("filter", "")) as news:
        return await stream_events(call, news, encode_news)


# --- JSON ---------------------------------------------------------------------------------------------------


_encode = msgspec.json.Encoder().encode


def encode_news(news: News) -> bytes:
    """`message` events with their ids, and `skipped` events; a comment if there are none."""
    events = [b'event: skipped\ndata: {"messages": %d}\n\n' % news.skipped] if news.skipped else []
    for message in news.messages:
        body = matched_message(message)
        events.append(b"event: message\nid: %b\ndata: %b\n\n" % (body.message_id.encode(), _encode(body)))
    return b"".join(events) or ALIVE
