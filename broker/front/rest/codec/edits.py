"""Editing dead letters; an extension (G2)."""

from typing import Any

import msgspec

from broker.domain.edit import Edited, LetterEdit
from broker.front.rest.codec.requests import decode_request


class EditDeadLetterRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    message_id: str = ""
    set_attributes: dict[str, str] = {}
    remove_attributes: list[str] = []
    data: bytes | None = None
    subscription: object = None  # in the path


_edit = msgspec.json.Decoder(EditDeadLetterRequest)


def decode_edit(body: bytes) -> LetterEdit:
    """Raises InvalidArgument."""
    request = decode_request(_edit, body)
    return LetterEdit(
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
