"""Pauses; extensions."""

from typing import Any

import msgspec

from broker.domain.pause import Pause
from broker.domain.timestamps import format_timestamp
from broker.front.rest.codec.requests import decode_request


class PauseRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    reason: str = ""
    subscription: object = None  # in the path


_pause = msgspec.json.Decoder(PauseRequest)


def decode_pause(body: bytes) -> str:
    """The reason, "" if there is none.  Raises InvalidArgument."""
    return decode_request(_pause, body).reason


def pause_json(pause: Pause) -> dict[str, Any]:
    """Since when and by whom, as far as that is known."""
    body = {"pausedReason": pause.reason}
    if pause.since is not None:
        body["pauseTime"] = format_timestamp(pause.since)
    return body | ({"pausedBy": pause.by} if pause.by else {})
