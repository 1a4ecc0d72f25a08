"""The commands of `broker snapshot` that broker/cli/resources.py does not generate."""

import click

from broker.client.api import Json
from broker.client.calling import Session
from broker.client.fields import LABEL
from broker.client.words import future_text, pairs

CREATE_OPTIONS = (
    click.option("--sub", "subscription", metavar="SUB", required=True, help="The subscription as it is now."),
    LABEL,
)
UPDATE_OPTIONS = (
    LABEL,
    click.option("--expires", metavar="TIME", help="Delete it then, such as 2026-12-01T08:00:00Z."),
    click.option("--clear", "cleared", type=click.Choice(["labels"]), multiple=True, help="Remove all labels."),
)


def find(session: Session, *, topic: str | None) -> list[Json]:
    """The snapshots of the project, or those of a topic."""
    found = session.api.all_of(f"{session.project}/snapshots", "snapshots")
    if not topic:
        return found
    names = session.api.all_of(f"{session.topic(topic)}/snapshots", "snapshots")
    return [one for one in found if one["name"] in names]


def make_create_body(session: Session, *, subscription: str, labels: tuple[str, ...]) -> Json:
    return {"subscription": session.subscription(subscription), "labels": pairs(labels, "--label")}


def make_update_body(_: Session, *, labels: tuple[str, ...], expires: str | None) -> Json:
    body: Json = {"labels": pairs(labels, "--label")} if labels else {}
    return body | ({"expireTime": future_text(expires, "--expires")} if expires else {})
