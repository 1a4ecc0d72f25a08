"""REST handler that edits dead letters, an extension."""

from typing import Any

import msgspec

from broker.api.rest.call import Call
from broker.api.rest.codec.requests import decode_request
from broker.api.rest.codec.resources import encode_resource
from broker.features.dead_letters.editing.edit import DeadLetterEdit, Edited
from broker.features.dead_letters.editing.service import EditService


async def edit_dead_letter(service: EditService, call: Call) -> bytes:
    async def may_consume(name: str) -> None:
        if call.gate is not None:
            await call.gate.allow(call.caller, call.needs, name)

    edited = await service.edit(call.name, decode_edit(call.body), by=call.caller.member, may_consume=may_consume)
    return encode_resource(edited_json(edited))


# --- JSON ---------------------------------------------------------------------------------------------------


class EditDeadLetterRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    message_id: str = ""
    set_attributes: dict[str, str] = {}
    remove_attributes: list[str] = []
    data: bytes | None = None
    subscription: object = None  # in the path


_edit = msgspec.json.Decoder(EditDeadLetterRequest)


def decode_edit(body: bytes) -> DeadLetterEdit:
    """Decodes an edit.  Raises InvalidArgument."""
    request = decode_request(_edit, body)
    return DeadLetterEdit(
        message_id=request.message_id,
        set_attributes=request.set_attributes,
        remove_attributes=request.remove_attributes,
        data=request.data,
    )


def edited_json(edited: Edited) -> dict[str, Any]:
    return {
        "messageId": edited.message_id,
        "replaces": list(edited.replaces),
        "outOfOrder": edited.out_of_order,
    }
