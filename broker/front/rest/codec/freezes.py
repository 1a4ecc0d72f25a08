"""Freezes of topics; extensions."""

from typing import Any

import msgspec

from broker.domain.freeze import Freeze
from broker.domain.timestamps import format_timestamp
from broker.front.rest.codec.requests import decode_request


class FreezeRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    reason: str = ""


_freeze = msgspec.json.Decoder(FreezeRequest)


def decode_freeze(body: bytes) -> str:
    """The reason, "" if there is none.  Raises InvalidArgument."""
    return decode_request(_freeze, body).reason


def freeze_json(freeze: Freeze) -> dict[str, Any]:
    """By whom as far as that is known."""
    body = {"reason": freeze.reason, "freezeTime": format_timestamp(freeze.since)}
    return body | ({"frozenBy": freeze.by} if freeze.by else {})
