"""Resending; an extension (G2)."""

from broker.front.rest.call import Call
from broker.front.rest.codec.resends import decode_resend, resent_json
from broker.front.rest.codec.resources import encode_resource


async def resend(call: Call) -> bytes:
    done = await call.services.acting.resends.resend(call.name, decode_resend(call.body), by=call.caller.member)
    return encode_resource(resent_json(done))
