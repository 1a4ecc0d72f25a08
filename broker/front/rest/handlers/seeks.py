"""Previewing and undoing seeks, and purging; extensions."""

from collections.abc import Mapping
from typing import Any

import msgspec

from broker.domain.preview import Preview
from broker.domain.purging import PurgeOptions, check_purge
from broker.front import permissions
from broker.front.generated import messages
from broker.front.rest.call import Call
from broker.front.rest.codec.requests import convert_json, decode_request
from broker.front.rest.codec.resources import encode_resource
from broker.front.rest.codec.scalars import parse_timestamp
from broker.front.rest.handlers.operations import operation_json, validated
from broker.front.rest.handlers.positions import replay_json
from broker.services.seeks import Target


async def preview_seek(call: Call) -> bytes:
    target = decode_preview(call.body)
    if call.gate is not None and target.snapshot:  # whoever may seek there may see what it would bring about
        request = messages.SeekRequest(subscription=call.name, snapshot=target.snapshot)
        await call.gate.allow_request(call.caller, permissions.SEEK, request)
    return encode_resource(preview_json(await call.services.acting.seeks.preview(call.name, target)))


async def undo_seek(call: Call) -> bytes:
    return encode_resource(replay_json(await call.services.acting.seeks.undo(call.name, by=call.caller.member)))


async def purge_subscription(call: Call) -> bytes:
    options = decode_purge(call.body)
    check_purge(options)
    if options.filter:
        operation = await call.services.acting.purges.purge_matching(
            call.name, options, started_by=call.caller.member
        )
        body = operation_json(operation)
        return encode_resource(validated(body) if options.validate_only else body)
    purged = await call.services.acting.seeks.purge(
        call.name, before=options.before, undoable=options.undoable, by=call.caller.member
    )
    return encode_resource({"undoSnapshot": purged.undo_snapshot} if options.undoable else {})


async def purge_topic(call: Call) -> bytes:
    await call.services.acting.purges.purge_topic(call.name, by=call.caller.member)
    return encode_resource({})


# --- JSON ---------------------------------------------------------------------------------------------------


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
