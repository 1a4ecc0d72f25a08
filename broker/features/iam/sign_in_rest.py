"""The call that makes a link that signs its caller in to the console, an extension."""

import msgspec

from broker.access.sessions.sessions import Sessions
from broker.api.rest.call import Call
from broker.api.rest.codec.requests import decode_request
from broker.api.rest.codec.resources import encode_resource
from broker.model.errors import FailedPrecondition, Unauthenticated
from broker.model.timestamps import format_timestamp

HOME, PAGE = "/console/", "/console/link"


class CreateSignInLinkRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Has no fields."""


_create = msgspec.json.Decoder(CreateSignInLinkRequest)


async def create_sign_in_link(sessions: Sessions | None, has_console: bool, call: Call) -> bytes:
    decode_request(_create, call.body)
    if not has_console:
        raise FailedPrecondition("The broker serves no console (--console on).")
    if sessions is None:
        return encode_resource({"path": HOME})
    if not call.caller.authenticated:
        raise Unauthenticated("A link signs its caller in, and this call has no credential.")
    token, expires_at = await sessions.make_link(call.caller)
    # Browsers send no server what follows "#", so no log has the token.
    return encode_resource({"path": f"{PAGE}#{token}", "expireTime": format_timestamp(expires_at)})
