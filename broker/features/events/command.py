"""`broker events`."""

import click

from broker.client.api import Json
from broker.client.calling import Session, calling
from broker.client.command_line import Group
from broker.client.event_stream import print_events
from broker.client.output import Shown
from broker.client.stop import Stop
from broker.client.words import leaf


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


@calling("tail", "broker events tail --max 1")
@click.option("--max", "most", metavar="N", type=click.IntRange(1), help="End after so many.")
def tail(session: Session, *, most: int | None) -> int:
    """Print events as they happen, until Ctrl-C."""
    topic = session.api.call("GET", f"{session.project}/settings").get("eventTopic")
    if not topic:
        raise Stop(f"{session.project} has no topic for events: `broker events set TOPIC` gives it one")
    return print_events(session, topic, {}, most)


def _shown(settings: Json) -> Shown:
    topic = settings.get("eventTopic")
    line = f"Events are published on {leaf(topic)}." if topic else "No events are published."
    return Shown(data=settings, line=line)


COMMANDS = Group(
    "events",
    help="The topic that events of a project are published on; these need this broker.",
    commands=[show, set_, off, tail],
)
