"""REST handler that returns the data of one message as bytes that browsers download; an extension."""

from broker.api.rest.call import Call
from broker.core.viewing.message_view import MAX_MASKED_BYTES
from broker.core.viewing.message_views import MessageViews
from broker.features.inspect.byte_range import ByteRange, MessageData, cut, parse_range
from broker.features.inspect.data_service import MessageDataService

_HEADERS = (
    b"content-type: application/octet-stream\r\n"
    b"content-disposition: attachment; filename=%b.bin\r\n"
    b"x-content-type-options: nosniff\r\n"
    b"content-security-policy: default-src 'none'; sandbox\r\n"
    b"accept-ranges: bytes\r\n"
    b"cache-control: private, no-store\r\n"
)


async def get_data(service: MessageDataService, views: MessageViews, call: Call) -> bytes:
    """Answers with the bytes of the message, or those of the range that the header Range names.

    Where fields are masked, the range is of what the caller sees.
    """
    topic, _, message_id = call.name.rpartition("/messages/")
    asked = parse_range(call.exchange.head.header(b"range"))
    view = await views.of(call, topic)
    hung_up = call.exchange.hung_up
    if view.hides_fields:
        whole = await service.get_data(topic, message_id, ByteRange(0, MAX_MASKED_BYTES), hung_up=hung_up)
        shown = await view.show("{}", whole.data, whole.size, MAX_MASKED_BYTES)
        if shown.masked is not None and shown.masked.data == "ALL":
            raise view.refuse_masked_data()
        found = cut(shown.data, asked or ByteRange())
    else:
        found = await service.get_data(topic, message_id, asked or ByteRange(), hung_up=hung_up)
    headers = _HEADERS % message_id.encode()
    if asked is None:
        await _respond(call, 200, headers, found.data)
    elif found.data:
        await _respond(call, 206, headers + b"content-range: " + _content_range(found) + b"\r\n", found.data)
    else:
        await _respond(call, 416, headers + b"content-range: bytes */%d\r\n" % found.size, b"")
    return b""


async def _respond(call: Call, status: int, headers: bytes, body: bytes) -> None:
    call.exchange.respond(status, headers, body)
    with call.answers.holding(call.name, len(body)):
        await call.exchange.taken()


def _content_range(found: MessageData) -> bytes:
    return b"bytes %d-%d/%d" % (found.first, found.first + len(found.data) - 1, found.size)
