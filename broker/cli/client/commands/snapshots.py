"""`broker snapshot`."""

import click

from broker.cli.client.api import Json
from broker.cli.client.calling import Session, calling
from broker.cli.client.confirming import YES, confirm
from broker.cli.client.fields import LABEL
from broker.cli.client.output import Shown
from broker.cli.client.updates import update_resource
from broker.cli.client.words import future_text, leaf, pairs, pairs_text, short_time
from broker.cli.command_line import Group
from broker.cli.stop import Misuse

COMMANDS = Group("snapshot", help="Snapshots: what a subscription had acknowledged at a time, to be sought back.")
_snapshot = click.argument("snapshot")


@calling(COMMANDS, "list", "broker snapshot list", "broker snapshot list --topic orders")
@click.option("--topic", metavar="TOPIC", help="Only those of this topic.")
def list_(session: Session, *, topic: str | None) -> Shown:
    """List the snapshots of a project."""
    found = session.api.all_of(f"{session.project}/snapshots", "snapshots")
    if topic:
        names = session.api.all_of(f"{session.topic(topic)}/snapshots", "snapshots")
        found = [one for one in found if one["name"] in names]
    rows = [
        [leaf(s["name"]), leaf(s["topic"]), short_time(s.get("expireTime")), pairs_text(s.get("labels"))]
        for s in found
    ]
    nothing = "There is no snapshot; `broker snapshot create NAME --sub SUB` makes one."
    columns = ("snapshot", "topic", "expires", "labels")
    whole, minor = ("topic", "expires"), ("labels", "topic", "expires")
    return Shown(data=found, columns=columns, rows=rows, whole=whole, minor=minor, nothing=nothing)


@calling(COMMANDS, "create", "broker snapshot create before-release --sub billing")
@_snapshot
@click.option("--sub", "subscription", metavar="SUB", required=True, help="The subscription as it is now.")
@LABEL
def create(session: Session, *, snapshot: str, subscription: str, labels: tuple[str, ...]) -> Shown:
    """Keep where a subscription stands, for seven days at the most."""
    name = session.snapshot(snapshot)
    body = {"subscription": session.subscription(subscription), "labels": pairs(labels, "--label")}
    return Shown(data=session.api.call("PUT", name, body), line=f"Created the snapshot {name}.")


@calling(COMMANDS, "show", "broker snapshot show before-release")
@_snapshot
def show(session: Session, *, snapshot: str) -> Shown:
    """Show a snapshot."""
    found = session.api.call("GET", session.snapshot(snapshot))
    return Shown(data=found, fields=found)


@calling(COMMANDS, "update", "broker snapshot update before-release --label release=7")
@_snapshot
@LABEL
@click.option("--expires", metavar="TIME", help="Delete it then, such as 2026-12-01T08:00:00Z.")
@click.option("--clear", "cleared", type=click.Choice(["labels"]), multiple=True, help="Remove all labels.")
def update(
    session: Session, *, snapshot: str, labels: tuple[str, ...], expires: str | None, cleared: tuple[str, ...]
) -> Shown:
    """Change the labels of a snapshot, or when it expires."""
    body: Json = {"labels": pairs(labels, "--label")} if labels else {}
    body |= {"expireTime": future_text(expires, "--expires")} if expires else {}
    if not body and not cleared:
        raise Misuse("nothing to change: give --label, --expires or --clear labels")
    name = session.snapshot(snapshot)
    changed = update_resource(session.api, name, "snapshot", body, cleared)
    return Shown(data=changed, line=f"Changed the snapshot {name}.")


@calling(COMMANDS, "delete", "broker snapshot delete before-release")
@_snapshot
@YES
def delete(session: Session, *, snapshot: str, yes: bool) -> Shown:
    """Delete a snapshot; messages that only it retains are deleted soon after."""
    name = session.snapshot(snapshot)
    confirm(f"Delete the snapshot {name}? Nobody can seek to it any more.", yes=yes)
    return Shown(data=session.api.call("DELETE", name), line=f"Deleted the snapshot {name}.")
