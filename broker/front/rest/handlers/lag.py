"""How far behind subscriptions are; an extension."""

from broker.front.rest.call import Call
from broker.front.rest.codec.lag import lag_json
from broker.front.rest.codec.lists import decode_list_size
from broker.front.rest.codec.resources import encode_resource


async def list_lag(call: Call) -> bytes:
    lags, total, now = await call.services.looking.lag.list_lag(
        call.name, page_size=decode_list_size(call.query), hung_up=call.exchange.hung_up
    )
    return encode_resource(lag_json(lags, total, now))
