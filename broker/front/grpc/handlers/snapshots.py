"""The Subscriber service's snapshots, and Seek."""

from broker.domain.refusals import refuse_unsupported
from broker.domain.snapshot import UNSUPPORTED_FIELDS
from broker.front.generated import messages
from broker.front.grpc.call import UnaryCall
from broker.front.grpc.codec.requests import decode_request
from broker.front.grpc.codec.snapshots import replay_trailers, snapshot_message
from broker.front.resources.requests import given_fields, mask_paths, page_of, project_name, resource_name
from broker.front.resources.times import to_datetime


async def create_snapshot(call: UnaryCall, body: bytes) -> bytes:
    request = decode_request(messages.CreateSnapshotRequest, body)
    refuse_unsupported(given_fields(request), UNSUPPORTED_FIELDS)
    labels = dict(request.labels)
    snapshot = await call.services.snapshots.create_snapshot(request.name, request.subscription, labels)
    return snapshot_message(snapshot).SerializeToString()  # type: ignore[no-any-return]


async def get_snapshot(call: UnaryCall, body: bytes) -> bytes:
    request = decode_request(messages.GetSnapshotRequest, body)
    snapshot = await call.services.snapshots.get_snapshot(resource_name(request.snapshot, "snapshots"))
    return snapshot_message(snapshot).SerializeToString()  # type: ignore[no-any-return]


async def update_snapshot(call: UnaryCall, body: bytes) -> bytes:
    request = decode_request(messages.UpdateSnapshotRequest, body)
    wanted = request.snapshot
    snapshot = await call.services.snapshots.update_snapshot(
        resource_name(wanted.name, "snapshots"),
        labels=dict(wanted.labels),
        expire_time=to_datetime(wanted.expire_time, "snapshot.expireTime")
        if wanted.HasField("expire_time")
        else None,
        paths=mask_paths(request),
    )
    return snapshot_message(snapshot).SerializeToString()  # type: ignore[no-any-return]


async def delete_snapshot(call: UnaryCall, body: bytes) -> bytes:
    request = decode_request(messages.DeleteSnapshotRequest, body)
    await call.services.snapshots.delete_snapshot(resource_name(request.snapshot, "snapshots"))
    return b""


async def list_snapshots(call: UnaryCall, body: bytes) -> bytes:
    request = decode_request(messages.ListSnapshotsRequest, body)
    project = project_name(request.project)
    found, token = await call.services.snapshots.list_snapshots(project, page_of(request))
    response = messages.ListSnapshotsResponse(snapshots=map(snapshot_message, found), next_page_token=token)
    return response.SerializeToString()  # type: ignore[no-any-return]


async def seek(call: UnaryCall, body: bytes) -> bytes:
    request = decode_request(messages.SeekRequest, body)
    replay = await call.services.snapshots.seek(
        resource_name(request.subscription, "subscriptions"),
        time=to_datetime(request.time, "time") if request.HasField("time") else None,
        snapshot_name=request.snapshot,
    )
    call.trailers = replay_trailers(replay)
    return b""
