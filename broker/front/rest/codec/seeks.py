"""Seeks that can be undone, and purges; extensions."""

from collections.abc import Mapping
from typing import Any

import msgspec

from broker.domain.preview import Preview
from broker.domain.purging import PurgeOptions
from broker.front.rest.codec.requests import convert_json, decode_request
from broker.front.rest.codec.scalars import parse_timestamp
from broker.services.seeks import Target


class _Beside(msgspec.Struct):
    """What the JSON of a SeekRequest has beside Google's fields."""

    undoable: bool = False


class PreviewSeekRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    time: str | None = None
    snapshot: str = ""
    subscription: object = None  # in the path
    undoable: bool = False  # of the seek; it changes nothing here


class PurgeSubscriptionRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    before: str | None = None
    undoable: bool = False
    filter: str = ""
    max_messages_per_second: float | None = None
    validate_only: bool = False


_preview = msgspec.json.Decoder(PreviewSeekRequest)
_purge = msgspec.json.Decoder(PurgeSubscriptionRequest)


def decode_undoable(beside: Mapping[str, Any]) -> bool:
    """Raises InvalidArgument."""
    return convert_json(dict(beside), _Beside).undoable if "undoable" in beside else False


def decode_preview(body: bytes) -> Target:
    """Raises InvalidArgument."""
    request = decode_request(_preview, body)
    return Target(None if request.time is None else parse_timestamp(request.time, "time"), request.snapshot)


def preview_json(preview: Preview) -> dict[str, Any]:
    body = {
        "replayedMessages": preview.again.messages,
        "replayedBytes": preview.again.size,
        "skippedMessages": preview.skipped.messages,
        "skippedBytes": preview.skipped.size,
        "notRetainedMessages": preview.not_retained,
    }
    if preview.maybe_gone:
        body["maybeGoneMessages"] = preview.maybe_gone
    return body | ({"estimated": True} if preview.is_estimated else {})


def decode_purge(body: bytes) -> PurgeOptions:
    """Raises InvalidArgument."""
    request = decode_request(_purge, body)
    return PurgeOptions(
        before=None if request.before is None else parse_timestamp(request.before, "before"),
        undoable=request.undoable,
        filter=request.filter,
        max_rate=request.max_messages_per_second,
        validate_only=request.validate_only,
    )
