"""Releasing and dead-lettering single messages, an extension."""

import msgspec

from broker.api.rest.call import Call
from broker.api.rest.codec.requests import decode_request
from broker.api.rest.codec.resources import encode_resource
from broker.core.backlog.outcome import outcomes_json
from broker.features.held_messages.service import HeldMessageService


async def release(service: HeldMessageService, call: Call) -> bytes:
    ids = decode_held_messages(call.body)
    return encode_resource(outcomes_json(await service.release(call.name, ids, by=call.caller.member)))


async def dead_letter(service: HeldMessageService, call: Call) -> bytes:
    ids = decode_held_messages(call.body)
    return encode_resource(outcomes_json(await service.dead_letter(call.name, ids, by=call.caller.member)))


# --- JSON ---------------------------------------------------------------------------------------------------


class HeldMessagesRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    message_ids: list[str] = []
    subscription: object = None  # in the path


_held = msgspec.json.Decoder(HeldMessagesRequest)


def decode_held_messages(body: bytes) -> list[str]:
    """The message ids of a release, or of a call that dead-letters messages.  Raises InvalidArgument."""
    return decode_request(_held, body).message_ids
