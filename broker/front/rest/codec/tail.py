"""What is published, as Server-Sent Events; an extension."""

import msgspec

from broker.domain.errors import BrokerError
from broker.front.rest.codec.filters import matched_message
from broker.front.rest.errors import encode_error
from broker.services.tail import News

ALIVE = b": alive\n\n"
_encode = msgspec.json.Encoder().encode


def encode_news(news: News) -> bytes:
    """`message` events with their ids, and `skipped` events; a comment if there are none."""
    events = [b'event: skipped\ndata: {"messages": %d}\n\n' % news.skipped] if news.skipped else []
    for message in news.messages:
        body = matched_message(message)
        events.append(b"event: message\nid: %b\ndata: %b\n\n" % (body.message_id.encode(), _encode(body)))
    return b"".join(events) or ALIVE


def encode_failure(error: BrokerError) -> bytes:
    """An `error` event, with the body that a call has for it."""
    _, body, _ = encode_error(error)
    return b"event: error\ndata: %b\n\n" % b"".join(body.splitlines())
