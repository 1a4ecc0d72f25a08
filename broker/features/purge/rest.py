"""The calls that purge subscriptions and topics; extensions."""

import msgspec

from broker.api.rest.call import Call
from broker.api.rest.codec.requests import decode_request
from broker.api.rest.codec.resources import encode_resource
from broker.api.rest.codec.scalars import parse_timestamp
from broker.api.rest.previews import SafeguardFields, done_or_preview, preview_answer, safeguards_of_body
from broker.core.backlog.seeking.position_rest import undo_json
from broker.core.backlog.seeking.seek_service import SeekService
from broker.features.operations.rest import operation_json, origin_of, validated
from broker.features.purge.purging import PurgeOptions, check_purge
from broker.features.purge.service import PurgeService
from broker.model.preview import Undone


async def purge_subscription(service: PurgeService, seeks: SeekService, call: Call) -> bytes:
    options = decode_purge(call.body)
    check_purge(options)
    if options.filter:
        operation = await service.purge_matching(call.name, options, origin=origin_of(call))
        body = operation_json(operation)
        return encode_resource(validated(call, body) if options.safeguards.validate_only else body)
    try:
        purged = await seeks.purge(
            call.name,
            before=options.before,
            undoable=options.undoable,
            by=call.caller.member,
            safeguards=options.safeguards,
        )
    except Undone as undone:
        return await preview_answer(call, undone.preview)
    return encode_resource(undo_json(purged.undo))


async def purge_topic(service: PurgeService, call: Call) -> bytes:
    preview = await service.purge_topic(call.name, safeguards_of_body(call.body), by=call.caller.member)
    return await done_or_preview(call, preview)


# --- JSON ---------------------------------------------------------------------------------------------------


class PurgeSubscriptionRequest(SafeguardFields, rename="camel", forbid_unknown_fields=True):
    before: str | None = None
    undoable: bool = False
    filter: str = ""
    max_messages_per_second: float | None = None


_purge = msgspec.json.Decoder(PurgeSubscriptionRequest)


def decode_purge(body: bytes) -> PurgeOptions:
    """Raises InvalidArgument."""
    request = decode_request(_purge, body)
    return PurgeOptions(
        before=None if request.before is None else parse_timestamp(request.before, "before"),
        undoable=request.undoable,
        filter=request.filter,
        max_rate=request.max_messages_per_second,
        safeguards=request.safeguards(),
    )
