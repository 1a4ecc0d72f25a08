"""Messages of a topic, published anew on another one; an extension (G2)."""

from broker.front.rest.call import Call
from broker.front.rest.codec.copies import copy_json, decode_copy
from broker.front.rest.codec.resources import encode_resource


async def copy_topic(call: Call) -> bytes:
    options = decode_copy(call.body)
    if call.gate is not None and options.target:
        await call.gate.allow(call.caller, "Publisher.Publish", options.target)
    operation = await call.services.acting.copies.copy(call.name, options, started_by=call.caller.member)
    return encode_resource(copy_json(operation, validate_only=options.validate_only))
