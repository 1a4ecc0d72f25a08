"""Undoing seeks, and purging; extensions."""

from broker.domain.purging import check_purge
from broker.front.generated import messages
from broker.front.rest.call import Call
from broker.front.rest.codec.operations import operation_json, validated
from broker.front.rest.codec.positions import replay_json
from broker.front.rest.codec.resources import encode_resource
from broker.front.rest.codec.seeks import decode_preview, decode_purge, preview_json


async def preview_seek(call: Call) -> bytes:
    target = decode_preview(call.body)
    if call.gate is not None and target.snapshot:  # whoever may seek there may see what it would bring about
        request = messages.SeekRequest(subscription=call.name, snapshot=target.snapshot)
        await call.gate.allow_request(call.caller, "Subscriber.Seek", request)
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
