"""Rows of the table of calls for snapshots, seeks, and the position of a subscription."""

from collections.abc import Sequence
from functools import partial

from broker.api.permissions import CONSUME, GET_SUBSCRIPTION, SEEK, Need, Needs, On
from broker.api.rest.resource_handler import WHOLE
from broker.api.rest.routes import Rest
from broker.api.row import PROJECT, SNAPSHOT, SUBSCRIPTION, Http, Row, about_resource
from broker.api.rpc import Audit, Kind, Size
from broker.core.backlog.seeking import position_rest, seek_rest, snapshot_calls
from broker.core.backlog.seeking.seek_service import SeekService
from broker.core.backlog.seeking.snapshot_service import SnapshotService


def make_rpcs(*, snapshots: SnapshotService, seeks: SeekService) -> Sequence[Row]:
    # fmt: off
    return [
        about_resource(
            name="Subscriber.CreateSnapshot", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CREATE, starts=None,
            needs=Needs(
                Need("pubsub.snapshots.create", "name", On.PROJECT),
                Need("pubsub.subscriptions.consume", "subscription"),
                named_in="subscription",
            ),
            handler=partial(snapshot_calls.create_snapshot, snapshots), target="name",
            http=[Http("PUT", SNAPSHOT, "CreateSnapshot", WHOLE)],
        ),
        about_resource(
            name="Subscriber.UpdateSnapshot", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.UPDATE, starts=None,
            needs=Needs(Need("pubsub.snapshots.update", "snapshot.name")),
            handler=partial(snapshot_calls.update_snapshot, snapshots), target="snapshot.name",
            http=[Http("PATCH", SNAPSHOT, "UpdateSnapshot", WHOLE)],
        ),
        about_resource(
            name="Subscriber.GetSnapshot", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=Needs(Need("pubsub.snapshots.get", "snapshot")),
            handler=partial(snapshot_calls.get_snapshot, snapshots), target="snapshot",
            http=[Http("GET", SNAPSHOT, "GetSnapshot")],
        ),
        about_resource(
            name="Subscriber.ListSnapshots", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=Needs(Need("pubsub.snapshots.list", "project", listed="snapshots")),
            handler=partial(snapshot_calls.list_snapshots, snapshots), target="project",
            http=[Http("GET", f"{PROJECT}/snapshots", "ListSnapshots")],
        ),
        about_resource(
            name="Subscriber.DeleteSnapshot", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
            needs=Needs(Need("pubsub.snapshots.delete", "snapshot")),
            handler=partial(snapshot_calls.delete_snapshot, snapshots), target="snapshot",
            http=[Http("DELETE", SNAPSHOT, "DeleteSnapshot", safeguarded="query")],
        ),
        about_resource(
            name="Subscriber.Seek", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
            needs=SEEK,
            handler=partial(snapshot_calls.seek, seeks), target="subscription",
            http=[
                Http("POST", f"{SUBSCRIPTION}:seek", "Seek", WHOLE, safeguarded="body"),
                Http("POST", f"{SUBSCRIPTION}/seek", "SeekByPlainPath", WHOLE, safeguarded="body"),
            ],
        ),
        Row(
            name="PreviewSeek", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=CONSUME,  # and SEEK on a snapshot
            rest=[
                Rest(
                    "POST", f"{SUBSCRIPTION}:previewSeek", "PreviewSeek",
                    partial(seek_rest.preview_seek, seeks), (),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="UndoSeek", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
            needs=CONSUME,
            rest=[Rest("POST", f"{SUBSCRIPTION}:undoSeek", "UndoSeek", partial(seek_rest.undo_seek, seeks), ())],
            grpc=[],
        ),
        Row(
            name="GetPosition", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=GET_SUBSCRIPTION,
            rest=[
                Rest(
                    "GET", f"{SUBSCRIPTION}/snapshot", "GetPosition",
                    partial(position_rest.get_position, snapshots), (),
                ),
            ],
            grpc=[],
        ),
    ]
    # fmt: on
