"""Freezing topics; extensions."""

from broker.front.rest.call import Call
from broker.front.rest.codec.freezes import decode_freeze
from broker.front.rest.codec.resources import encode_resource


async def freeze_topic(call: Call) -> bytes:
    await call.services.acting.freezes.freeze(call.name, decode_freeze(call.body), by=call.caller.member)
    return encode_resource({})


async def unfreeze_topic(call: Call) -> bytes:
    await call.services.acting.freezes.unfreeze(call.name, by=call.caller.member)
    return encode_resource({})
