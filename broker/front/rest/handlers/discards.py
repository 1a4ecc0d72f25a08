"""Discarding; an extension (G2)."""

from broker.front.rest.call import Call
from broker.front.rest.codec.discards import decode_discard, discarded_json
from broker.front.rest.codec.resources import encode_resource


async def discard(call: Call) -> bytes:
    async def may_consume(name: str) -> None:
        if call.gate is not None:
            await call.gate.allow(call.caller, "Discard", name)

    done = await call.services.acting.discards.discard(
        call.name, decode_discard(call.body), by=call.caller.member, may_consume=may_consume
    )
    return encode_resource(discarded_json(done))
