"""Previewing and undoing seeks; extensions."""

from collections.abc import Mapping
from typing import Any

import msgspec

from broker.api import permissions
from broker.api.generated import messages
from broker.api.rest.call import Call
from broker.api.rest.codec.requests import convert_json, decode_request
from broker.api.rest.codec.resources import encode_resource
from broker.api.rest.codec.scalars import parse_timestamp
from broker.core.backlog.seeking.position_rest import replay_json
from broker.core.backlog.seeking.preview import Preview
from broker.core.backlog.seeking.seek_service import SeekService, Target
from broker.model.errors import InvalidArgument


async def preview_seek(service: SeekService, call: Call) -> bytes:
    target = decode_preview(call.body)
    # Callers who may seek to a snapshot may see the effect.
    if call.gate is not None and target is not None and target.snapshot:
        request = messages.SeekRequest(subscription=call.name, snapshot=target.snapshot)
        await call.gate.allow_request(call.caller, permissions.SEEK, request)
    return encode_resource(preview_json(await service.preview(call.name, target)))


async def undo_seek(service: SeekService, call: Call) -> bytes:
    return encode_resource(replay_json(await service.undo(call.name, by=call.caller.member)))


# --- JSON ---------------------------------------------------------------------------------------------------


class _SeekExtensions(msgspec.Struct):
    """The fields of a SeekRequest's JSON that Google's message lacks."""

    undoable: bool = False


class PreviewSeekRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    time: str | None = None
    snapshot: str = ""
    subscription: object = None  # in the path
    undoable: bool = False  # of the seek; it changes nothing here
    undo: bool = False


_preview = msgspec.json.Decoder(PreviewSeekRequest)


def decode_undoable(extension_fields: Mapping[str, Any]) -> bool:
    """Raises InvalidArgument."""
    return (
        convert_json(dict(extension_fields), _SeekExtensions).undoable if "undoable" in extension_fields else False
    )


def decode_preview(body: bytes) -> Target | None:
    """Returns the target of a seek; None: what would be undone is asked for.  Raises InvalidArgument."""
    request = decode_request(_preview, body)
    if request.undo:
        if request.time is not None or request.snapshot:
            raise InvalidArgument("undo cannot be given with time or snapshot.")
        return None
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
