"""The Subscriber service's snapshots, Seek, and where a subscription stands."""

from broker.front.rest.call import Call
from broker.front.rest.codec.lists import decode_page, encode_list
from broker.front.rest.codec.resources import encode_resource
from broker.front.rest.codec.snapshots import (
    decode_create_snapshot,
    decode_seek,
    decode_update_snapshot,
    positions_json,
    replay_json,
    snapshot_json,
)


async def create_snapshot(call: Call) -> bytes:
    request = decode_create_snapshot(call.body, call.name)
    snapshot = await call.services.snapshots.create_snapshot(call.name, request.subscription, request.labels)
    return encode_resource(snapshot_json(snapshot))


async def get_snapshot(call: Call) -> bytes:
    return encode_resource(snapshot_json(await call.services.snapshots.get_snapshot(call.name)))


async def update_snapshot(call: Call) -> bytes:
    update = decode_update_snapshot(call.body, call.name, call.update_mask)
    snapshot = await call.services.snapshots.update_snapshot(
        call.name, labels=update.labels, expire_time=update.expire_time, paths=update.paths
    )
    return encode_resource(snapshot_json(snapshot))


async def delete_snapshot(call: Call) -> bytes:
    await call.services.snapshots.delete_snapshot(call.name)
    return encode_resource({})


async def list_snapshots(call: Call) -> bytes:
    snapshots, token = await call.services.snapshots.list_snapshots(call.name, decode_page(call.query))
    return encode_list("snapshots", [snapshot_json(snapshot) for snapshot in snapshots], token)


async def seek(call: Call) -> bytes:
    time, snapshot = decode_seek(call.body)
    replay = await call.services.snapshots.seek(call.name, time=time, snapshot_name=snapshot)
    return encode_resource(replay_json(replay))


async def get_position(call: Call) -> bytes:
    return encode_resource(positions_json(*await call.services.snapshots.positions(call.name)))
