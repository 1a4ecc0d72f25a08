"""The messages that a subscription has, in their states; an extension."""

from broker.front.rest.call import Call
from broker.front.rest.codec.resources import encode_resource
from broker.front.rest.codec.standing_messages import decode_standing_page, standing_list_json


async def list_messages(call: Call) -> bytes:
    page = decode_standing_page(call.query)
    found = await call.services.looking.standing_messages.list_messages(
        call.name, page, hung_up=call.exchange.hung_up
    )
    return encode_resource(standing_list_json(found))
