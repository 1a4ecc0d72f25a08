"""Subscriber's snapshots and Seek: google.pubsub.v1.Snapshot and what it means, and the calls."""

from typing import Any

from broker.api.generated import messages
from broker.api.google.call import EMPTY, Answer, ResourceCall
from broker.api.google.fields import refuse_unsupported
from broker.api.google.requests import page_of, project_name, resource_name
from broker.api.google.times import from_datetime, to_datetime
from broker.api.google.updates import update_of
from broker.api.permissions import visible_in
from broker.core.backlog.seeking.seek_service import Target
from broker.core.backlog.seeking.snapshot import UNSUPPORTED_FIELDS, Snapshot


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


def _answer(snapshot: Snapshot) -> Answer:
    return Answer(snapshot_message(snapshot), snapshot)


async def create_snapshot(call: ResourceCall, request: Any) -> Answer:
    refuse_unsupported(request, UNSUPPORTED_FIELDS)
    create = call.services.snapshots.create_snapshot
    return _answer(await create(request.name, request.subscription, dict(request.labels)))


async def get_snapshot(call: ResourceCall, request: Any) -> Answer:
    return _answer(await call.services.snapshots.get_snapshot(resource_name(request.snapshot, "snapshots")))


async def update_snapshot(call: ResourceCall, request: Any) -> Answer:
    resource_name(request.snapshot.name, "snapshots")
    update = update_of(request.snapshot, list(request.update_mask.paths), snapshot_message, snapshot_from)
    return _answer(await call.services.snapshots.update_snapshot(update))


async def delete_snapshot(call: ResourceCall, request: Any) -> Answer:
    await call.services.snapshots.delete_snapshot(resource_name(request.snapshot, "snapshots"))
    return EMPTY


async def list_snapshots(call: ResourceCall, request: Any) -> Answer:
    project = project_name(request.project)
    page = page_of(request, visible_in(call.allowed, project))
    found, token = await call.services.snapshots.list_snapshots(project, page)
    shown = map(snapshot_message, found)
    return Answer(messages.ListSnapshotsResponse(snapshots=shown, next_page_token=token), list(found))


async def seek(call: ResourceCall, request: Any) -> Answer:
    name = resource_name(request.subscription, "subscriptions")
    replay = await call.services.acting.seeks.seek(
        name, target_from(request), undoable=call.undoable, by=call.caller.member
    )
    return Answer(messages.SeekResponse(), replay)


def target_from(request: Any) -> Target:
    time = to_datetime(request.time, "time") if request.HasField("time") else None
    return Target(time, request.snapshot)
