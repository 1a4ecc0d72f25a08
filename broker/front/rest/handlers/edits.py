"""Editing dead letters; an extension (G2)."""

from broker.front.rest.call import Call
from broker.front.rest.codec.edits import decode_edit, edited_json
from broker.front.rest.codec.resources import encode_resource


async def edit_dead_letter(call: Call) -> bytes:
    async def may_consume(name: str) -> None:
        if call.gate is not None:
            await call.gate.allow(call.caller, "EditDeadLetter", name)

    edited = await call.services.acting.edits.edit(
        call.name, decode_edit(call.body), by=call.caller.member, may_consume=may_consume
    )
    return encode_resource(edited_json(edited))
