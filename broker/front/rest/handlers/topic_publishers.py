"""What publishes on a topic without a caller; an extension."""

from broker.domain.page import parse_page
from broker.front.rest.call import Call
from broker.front.rest.codec.lists import decode_page_parameters, encode_list
from broker.front.rest.codec.topic_publishers import publisher_json


async def list_publishers(call: Call) -> bytes:
    page = parse_page(*decode_page_parameters(call.query))
    found, token = await call.services.looking.topic_publishers.list_publishers(call.name, page)
    return encode_list("publishers", [publisher_json(publisher) for publisher in found], token)
