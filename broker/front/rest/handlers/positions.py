"""Where a subscription stands; an extension."""

from broker.front.rest.call import Call
from broker.front.rest.codec.positions import positions_json
from broker.front.rest.codec.resources import encode_resource


async def get_position(call: Call) -> bytes:
    return encode_resource(positions_json(*await call.services.snapshots.positions(call.name)))
