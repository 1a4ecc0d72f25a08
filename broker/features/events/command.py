"""`broker events`."""

import json

import click

from broker.client.api import Json
from broker.client.calling import Session, calling
from broker.client.command_line import Group
from broker.client.event_stream import print_events
from broker.client.fields import LABEL
from broker.client.output import Shown
from broker.client.stop import Stop
from broker.client.words import leaf, pairs, pairs_text, short_time


@calling("show", "broker events show")
def show(session: Session) -> Shown:
    """Show the settings of a project: the topic of its events."""
    return _shown(session.api.call("GET", f"{session.project}/settings"))


@calling("set", "broker events set events")
@click.argument("topic")
def set_(session: Session, *, topic: str) -> Shown:
    """Publish the events of a project on TOPIC."""
    return _shown(session.api.call("PATCH", f"{session.project}/settings", {"eventTopic": session.topic(topic)}))


@calling("off", "broker events off")
def off(session: Session) -> Shown:
    """Publish no events of a project."""
    return _shown(session.api.call("PATCH", f"{session.project}/settings", {"eventTopic": ""}))


@calling(
    "list",
    "broker events list",
    "broker events list --type pubsub.push.failing --max 20",
    "broker events list --type mark --oldest",
)
@click.option("--type", "kind", metavar="TYPE", help="Such as mark, or pubsub.push.*.")
@click.option("--subject", metavar="NAME", help="A full name; one that ends in * means all that begin so.")
@click.option("--oldest", is_flag=True, help="The oldest first.")
@click.option("--max", "most", metavar="N", type=click.IntRange(1), default=100, show_default=True)
def list_(session: Session, *, kind: str | None, subject: str | None, oldest: bool, most: int) -> Shown:
    """List the last events of a project, and its marks, the newest first."""
    terms = {"type": kind, "subject": subject}
    comparisons = [f"{field}={json.dumps(text)}" for field, text in terms.items() if text]
    wanted = {"filter": " AND ".join(comparisons) or None, "orderBy": "time" if oldest else None}
    found = session.api.all_of(f"{session.project}/events", "events", wanted, most)
    return Shown(
        data=found,
        columns=("time", "type", "subject", "what", "labels"),
        rows=[_row(event) for event in found],
        whole=("type",),
        minor=("labels",),
        nothing=f"{session.project} has no {'such ' if comparisons else ''}events.",
    )


@calling(
    "mark",
    "broker events mark 'Release 7 of the shop' --label release=7",
)
@click.argument("text")
@LABEL
def mark(session: Session, *, text: str, labels: tuple[str, ...]) -> Shown:
    """Mark the present time, of a deployment for example; charts of the console show it."""
    body: Json = {"text": text}
    if labels:
        body["labels"] = pairs(labels, "--label")
    made = session.api.call("POST", f"{session.project}/marks", body)
    return Shown(data=made, line=f"Marked {short_time(made['time'])}: {made['text']}")


@calling("tail", "broker events tail --max 1")
@click.option("--max", "most", metavar="N", type=click.IntRange(1), help="End after so many.")
def tail(session: Session, *, most: int | None) -> int:
    """Print events as they happen, until Ctrl-C."""
    topic = session.api.call("GET", f"{session.project}/settings").get("eventTopic")
    if not topic:
        raise Stop(f"{session.project} has no topic for events: `broker events set TOPIC` gives it one")
    return print_events(session, topic, {}, most)


def _row(event: Json) -> list[str]:
    what = event.get("text") or event.get("reason", "")
    time, subject = short_time(event.get("time")), leaf(event.get("subject"))
    return [time, str(event.get("type", "")), subject, what, pairs_text(event.get("labels"))]


def _shown(settings: Json) -> Shown:
    topic = settings.get("eventTopic")
    line = f"Events are published on {leaf(topic)}." if topic else "No events are published."
    return Shown(data=settings, line=line)


COMMANDS = Group(
    "events",
    help="Events of a project, marks, and the topic that events are published on; these need this broker.",
    commands=[list_, mark, show, set_, off, tail],
)
