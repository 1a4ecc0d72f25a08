"""Resending acknowledged messages, an extension."""

import msgspec

from broker.api.rest.call import Call
from broker.api.rest.codec.requests import decode_request
from broker.api.rest.codec.resources import encode_resource
from broker.core.backlog.outcome import outcomes_json
from broker.features.resend.resend import ResendOptions
from broker.features.resend.service import ResendService
from broker.model.errors import InvalidArgument


async def resend(service: ResendService, call: Call) -> bytes:
    done = await service.resend(call.name, decode_resend(call.body), by=call.caller.member)
    return encode_resource(outcomes_json(done))


# --- JSON ---------------------------------------------------------------------------------------------------


class ResendRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    message_id: str = ""
    message_ids: list[str] = []
    subscription: object = None  # in the path


_resend = msgspec.json.Decoder(ResendRequest)


def decode_resend(body: bytes) -> ResendOptions:
    """Raises InvalidArgument."""
    request = decode_request(_resend, body)
    if bool(request.message_id) == bool(request.message_ids):
        raise InvalidArgument("Say what is to be resent: either messageId, or messageIds.")
    if request.message_id:
        return ResendOptions(message_ids=[request.message_id], one=True)
    return ResendOptions(message_ids=request.message_ids)
