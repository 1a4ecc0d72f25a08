"""Seeks that can be undone, and purges; extensions."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from broker.front.rest.codec.requests import convert_json, decode_request
from broker.front.rest.codec.scalars import parse_timestamp


class _Beside(msgspec.Struct):
    """What the JSON of a SeekRequest has beside Google's fields."""

    undoable: bool = False


class PurgeSubscriptionRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    before: str | None = None
    undoable: bool = False


_purge = msgspec.json.Decoder(PurgeSubscriptionRequest)


def decode_undoable(beside: Mapping[str, Any]) -> bool:
    """Raises InvalidArgument."""
    return convert_json(dict(beside), _Beside).undoable if "undoable" in beside else False


def decode_purge(body: bytes) -> tuple[datetime | None, bool]:
    """What was published before then (None: all) is purged; whether that can be undone.  Raises InvalidArgument."""
    request = decode_request(_purge, body)
    return (None if request.before is None else parse_timestamp(request.before, "before")), request.undoable
