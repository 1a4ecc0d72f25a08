"""The call that returns its caller, an extension."""

from collections.abc import Mapping
from typing import Any

from broker.access.credentials.certificates import KIND as CERTIFICATE
from broker.access.principals.caller import Caller
from broker.api.rest.call import Call
from broker.api.rest.codec.resources import encode_resource
from broker.model.timestamps import format_timestamp

NO_CREDENTIAL = "NONE"
_KINDS = {  # by what the id of a credential begins with
    "key": "SERVICE_ACCOUNT_KEY",
    "apiKey": "API_KEY",
    "oidc": "OPENID_CONNECT_TOKEN",
    CERTIFICATE: "CLIENT_CERTIFICATE",
}


async def who_am_i(call: Call) -> bytes:
    return encode_resource(caller_json(call.caller))


def caller_json(caller: Caller) -> Mapping[str, Any]:
    """Encodes a caller.  If authentication is off, a caller without a credential has no principal."""
    if not caller.authenticated:
        return {"credential": {"kind": NO_CREDENTIAL}}
    kind = _KINDS[caller.credential.partition(":")[0]]
    body = {
        "principal": caller.member,
        "members": sorted(caller.members),
        "credential": {"kind": kind, "id": caller.credential},
    }
    return body if caller.until is None else body | {"expireTime": format_timestamp(caller.until)}
