"""Pausing subscriptions; extensions."""

from broker.front.rest.call import Call
from broker.front.rest.codec.pauses import decode_pause
from broker.front.rest.codec.resources import encode_resource


async def pause_subscription(call: Call) -> bytes:
    await call.services.acting.pauses.pause(call.name, decode_pause(call.body), by=call.caller.member)
    return encode_resource({})


async def resume_subscription(call: Call) -> bytes:
    await call.services.acting.pauses.resume(call.name, by=call.caller.member)
    return encode_resource({})
