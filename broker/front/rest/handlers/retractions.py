"""Retracting and replacing; extensions (J6)."""

from broker.front.rest.call import Call
from broker.front.rest.codec.resources import encode_resource
from broker.front.rest.codec.retractions import decode_replace, decode_retract, replaced_json, retracted_json
from broker.services.permitted import AskPermission


async def retract(call: Call) -> bytes:
    done = await call.services.acting.retractions.retract(
        call.name, decode_retract(call.body), by=call.caller.member, may_see=_may_see(call)
    )
    return encode_resource(retracted_json(done))


async def replace(call: Call) -> bytes:
    old_id, message = decode_replace(call.body)
    done = await call.services.acting.retractions.replace(
        call.name, old_id, message, by=call.caller.member, may_see=_may_see(call)
    )
    return encode_resource(replaced_json(done))


def _may_see(call: Call) -> AskPermission:
    async def may_see(name: str) -> None:
        if call.gate is not None:
            is_topic = name.split("/")[2] == "topics"
            await call.gate.allow(call.caller, "Publisher.GetTopic" if is_topic else "GetPushStatus", name)

    return may_see
