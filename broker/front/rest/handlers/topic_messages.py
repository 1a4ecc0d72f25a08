"""The messages that a topic retains; an extension."""

from broker.front.rest.call import Call
from broker.front.rest.codec.resources import encode_resource
from broker.front.rest.codec.topic_messages import decode_topic_page, topic_messages_json


async def list_messages(call: Call) -> bytes:
    page = decode_topic_page(call.query)
    found = await call.services.looking.topic_messages.list_messages(call.name, page, hung_up=call.exchange.hung_up)
    return encode_resource(topic_messages_json(found))
