"""The calls about snapshots and Seek of Subscriber, and the conversion from and to google.pubsub.v1.Snapshot."""

from collections.abc import Mapping, Sequence
from typing import Any

from broker.api.generated import messages
from broker.api.google.call import Answer, ResourceCall
from broker.api.google.fields import refuse_unsupported
from broker.api.google.requests import page_of, project_name, resource_name
from broker.api.google.times import from_datetime, to_datetime
from broker.api.google.updates import update_of
from broker.api.permissions import visible_in
from broker.core.backlog.seeking.position_rest import replay_json
from broker.core.backlog.seeking.replay import Replay
from broker.core.backlog.seeking.seek_rest import decode_undoable
from broker.core.backlog.seeking.seek_service import SeekService, Target
from broker.core.backlog.seeking.snapshot import UNSUPPORTED_FIELDS, Snapshot
from broker.core.backlog.seeking.snapshot_service import SnapshotService
from broker.model.preview import Undone
from broker.model.timestamps import format_timestamp


def snapshot_from(message: Any) -> Snapshot:
    """The snapshot that an update wants.  Raises InvalidArgument."""
    return Snapshot(
        name=message.name,
        topic=message.topic,
        labels=dict(message.labels),
        expire_time=to_datetime(message.expire_time, "snapshot.expireTime"),
    )


def snapshot_message(snapshot: Snapshot) -> Any:
    return messages.Snapshot(
        name=snapshot.name,
        topic=snapshot.topic,
        expire_time=from_datetime(snapshot.expire_time),
        labels=snapshot.labels,
    )


def snapshot_fields(snapshot: Snapshot) -> Mapping[str, Any]:
    """Returns the fields of a snapshot's JSON that protobuf writes in another way."""
    return {"expireTime": format_timestamp(snapshot.expire_time)}  # protobuf leaves out milliseconds that are 0


def _answer(snapshot: Snapshot) -> Answer:
    return Answer(snapshot_message(snapshot), snapshot, snapshot_fields)


async def create_snapshot(service: SnapshotService, call: ResourceCall, request: Any) -> Answer:
    refuse_unsupported(request, UNSUPPORTED_FIELDS)
    create = service.create_snapshot
    return _answer(await create(request.name, request.subscription, dict(request.labels)))


async def get_snapshot(service: SnapshotService, call: ResourceCall, request: Any) -> Answer:
    return _answer(await service.get_snapshot(resource_name(request.snapshot, "snapshots")))


async def update_snapshot(service: SnapshotService, call: ResourceCall, request: Any) -> Answer:
    resource_name(request.snapshot.name, "snapshots")
    update = update_of(request.snapshot, list(request.update_mask.paths), snapshot_message, snapshot_from)
    return _answer(await service.update_snapshot(update))


async def delete_snapshot(service: SnapshotService, call: ResourceCall, request: Any) -> Answer:
    name = resource_name(request.snapshot, "snapshots")
    return Answer(messages.Empty(), preview=await service.delete_snapshot(name, call.safeguards))


async def list_snapshots(service: SnapshotService, call: ResourceCall, request: Any) -> Answer:
    project = project_name(request.project)
    page = page_of(request, visible_in(call.allowed, project))
    found, token = await service.list_snapshots(project, page)
    shown = map(snapshot_message, found)
    response = messages.ListSnapshotsResponse(snapshots=shown, next_page_token=token)
    return Answer(response, list(found), snapshot_fields)


async def seek(service: SeekService, call: ResourceCall, request: Any) -> Answer:
    undoable = decode_undoable(call.extension_fields or {})
    name = resource_name(request.subscription, "subscriptions")
    try:
        replay = await service.seek(
            name,
            target_from(request),
            undoable=undoable,
            by=call.caller.member,
            safeguards=call.safeguards,
        )
    except Undone as undone:
        return Answer(messages.SeekResponse(), preview=undone.preview)
    return Answer(messages.SeekResponse(), replay, replay_json, _trailers(replay))


def _trailers(replay: Replay) -> Sequence[tuple[bytes, bytes]]:
    """Returns the effects of a seek as trailing metadata: Google's SeekResponse has no field for them."""
    trailers = [(b"broker-replayed-messages", str(replay.messages).encode())]
    if replay.at_least:
        trailers.append((b"broker-replayed-messages-at-least", b"true"))
    if replay.retained_since is not None:
        trailers.append((b"broker-retained-since", format_timestamp(replay.retained_since).encode()))
    if replay.not_retained:
        trailers.append((b"broker-not-retained", replay.not_retained.encode()))
    return trailers


def target_from(request: Any) -> Target:
    time = to_datetime(request.time, "time") if request.HasField("time") else None
    return Target(time, request.snapshot)
