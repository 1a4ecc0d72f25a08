"""Undoing seeks, and purging; extensions."""

from broker.front.rest.call import Call
from broker.front.rest.codec.positions import replay_json
from broker.front.rest.codec.resources import encode_resource
from broker.front.rest.codec.seeks import decode_purge


async def undo_seek(call: Call) -> bytes:
    return encode_resource(replay_json(await call.services.acting.seeks.undo(call.name)))


async def purge_subscription(call: Call) -> bytes:
    before, undoable = decode_purge(call.body)
    purged = await call.services.acting.seeks.purge(call.name, before=before, undoable=undoable)
    return encode_resource({"undoSnapshot": purged.undo_snapshot} if undoable else {})


async def purge_topic(call: Call) -> bytes:
    await call.services.acting.purges.purge_topic(call.name, by=call.caller.member)
    return encode_resource({})
