"""Publisher.Publish."""

from broker.domain.errors import BrokerError
from broker.front.rest.call import Call
from broker.front.rest.codec.publish import decode_large_publish, decode_publish, encode_published
from broker.front.steps import LONG_BODY

_WORTH_A_CHECK = 4096  # bytes; what is smaller is decoded sooner than it is asked whether it would be refused


async def publish(call: Call) -> bytes:
    service = call.services.publish
    try:
        if len(call.body) > _WORTH_A_CHECK:
            await service.check_room(call.name, call.caller.member)
        traceparent = call.exchange.head.header(b"traceparent") if service.is_traced else b""
        if len(call.body) < LONG_BODY:
            messages = decode_publish(call.body)
        else:
            messages = await call.in_steps(decode_large_publish(call.body))
        published = await service.publish(call.name, messages, call.caller.member, traceparent)
    except BrokerError as error:
        service.refused(call.name, error)
        raise
    return encode_published(published.ids, published.repeats)
