"""Who pulls and streams from a subscription; an extension."""

from broker.front.rest.call import Call
from broker.front.rest.codec.consumers import consumers_json
from broker.front.rest.codec.lists import decode_list_size
from broker.front.rest.codec.resources import encode_resource


async def list_consumers(call: Call) -> bytes:
    size = decode_list_size(call.query)
    return encode_resource(
        consumers_json(*await call.services.looking.consumers.list_consumers(call.name, page_size=size))
    )
