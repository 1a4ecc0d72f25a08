"""`broker snapshot`."""

import click

from broker.cli.client.calling import Session, calling
from broker.cli.client.confirming import YES, confirm
from broker.cli.client.fields import LABEL
from broker.cli.client.output import Shown
from broker.cli.client.words import leaf, pairs, pairs_text, short_time
from broker.cli.command_line import Group

COMMANDS = Group("snapshot", help="Snapshots: what a subscription had acknowledged at a time, to be sought back.")
_snapshot = click.argument("snapshot")


@calling(COMMANDS, "list", "broker snapshot list")
def list_(session: Session) -> Shown:
    """List the snapshots of a project."""
    found = session.api.all_of(f"{session.project}/snapshots", "snapshots")
    rows = [
        [leaf(s["name"]), leaf(s["topic"]), short_time(s.get("expireTime")), pairs_text(s.get("labels"))]
        for s in found
    ]
    nothing = "There is no snapshot; `broker snapshot create NAME --sub SUB` makes one."
    return Shown(data=found, columns=("snapshot", "topic", "expires", "labels"), rows=rows, nothing=nothing)


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


@calling(COMMANDS, "delete", "broker snapshot delete before-release")
@_snapshot
@YES
def delete(session: Session, *, snapshot: str, yes: bool) -> Shown:
    """Delete a snapshot; messages that only it retains are deleted soon after."""
    name = session.snapshot(snapshot)
    confirm(f"Delete the snapshot {name}? Nobody can seek to it any more.", yes=yes)
    return Shown(data=session.api.call("DELETE", name), line=f"Deleted the snapshot {name}.")
