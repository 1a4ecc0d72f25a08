"""Publisher.Publish."""

from broker.front.rest.call import Call
from broker.front.rest.codec.publish import decode_publish, encode_message_ids


async def publish(call: Call) -> bytes:
    call.services.publish.check_room(call.name)
    ids = await call.services.publish.publish(call.name, decode_publish(call.body))
    return encode_message_ids(ids)
