"""Freezing topics, an extension."""

from typing import Any

import msgspec

from broker.api.rest.call import Call
from broker.api.rest.codec.requests import decode_request
from broker.api.rest.codec.resources import encode_resource
from broker.core.resources.freeze_service import FreezeService
from broker.model.freeze import Freeze
from broker.model.timestamps import format_timestamp


async def freeze_topic(service: FreezeService, call: Call) -> bytes:
    await service.freeze(call.name, decode_freeze(call.body), by=call.caller.member)
    return encode_resource({})


async def unfreeze_topic(service: FreezeService, call: Call) -> bytes:
    await service.unfreeze(call.name, by=call.caller.member)
    return encode_resource({})


# --- JSON ---------------------------------------------------------------------------------------------------


class FreezeRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    reason: str = ""


_freeze = msgspec.json.Decoder(FreezeRequest)


def decode_freeze(body: bytes) -> str:
    """The reason, "" if there is none.  Raises InvalidArgument."""
    return decode_request(_freeze, body).reason


def freeze_json(freeze: Freeze) -> dict[str, Any]:
    """Encodes a freeze, with its author if known."""
    body = {"reason": freeze.reason, "freezeTime": format_timestamp(freeze.since)}
    return body | ({"frozenBy": freeze.by} if freeze.by else {})
