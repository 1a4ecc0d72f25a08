"""Pausing subscriptions, an extension."""

from typing import Any

import msgspec

from broker.api.rest.call import Call
from broker.api.rest.codec.requests import decode_request
from broker.api.rest.codec.resources import encode_resource
from broker.core.resources.pause_service import PauseService
from broker.model.pause import Pause
from broker.model.timestamps import format_timestamp


async def pause_subscription(service: PauseService, call: Call) -> bytes:
    await service.pause(call.name, decode_pause(call.body), by=call.caller.member)
    return encode_resource({})


async def resume_subscription(service: PauseService, call: Call) -> bytes:
    await service.resume(call.name, by=call.caller.member)
    return encode_resource({})


# --- JSON ---------------------------------------------------------------------------------------------------


class PauseRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    reason: str = ""
    subscription: object = None  # in the path


_pause = msgspec.json.Decoder(PauseRequest)


def decode_pause(body: bytes) -> str:
    """The reason, "" if there is none.  Raises InvalidArgument."""
    return decode_request(_pause, body).reason


def pause_json(pause: Pause) -> dict[str, Any]:
    """Encodes a pause, with its time and author if known."""
    body = {"pausedReason": pause.reason}
    if pause.since is not None:
        body["pauseTime"] = format_timestamp(pause.since)
    return body | ({"pausedBy": pause.by} if pause.by else {})
