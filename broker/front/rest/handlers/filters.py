"""TestFilter, an extension: what a filter would match."""

from broker.front.rest.call import Call
from broker.front.rest.codec.filters import decode_test_filter, filter_test_json
from broker.front.rest.codec.resources import encode_resource


async def test_filter(call: Call) -> bytes:
    text, page = decode_test_filter(call.body)
    tested = await call.services.looking.filters.test_filter(call.name, text, page, hung_up=call.exchange.hung_up)
    return encode_resource(filter_test_json(tested))


async def test_filter_of_subscription(call: Call) -> bytes:
    text, page = decode_test_filter(call.body)
    tested = await call.services.looking.filters.test_filter_of_subscription(
        call.name, text, page, hung_up=call.exchange.hung_up
    )
    return encode_resource(filter_test_json(tested))
