"""The commands of `broker scheduled` that broker/cli/resources.py does not generate."""

import click

from broker.client.api import Json
from broker.client.calling import Session, calling
from broker.client.delays import AT, DELAY, moment_of
from broker.client.output import Shown
from broker.client.words import short_time

_topic = click.argument("topic")
ARGUMENTS = (_topic, click.argument("message_id", metavar="ID"))
LIST_OPTIONS = (
    _topic,
    click.option("--max", "most", metavar="N", type=click.IntRange(1), default=100, show_default=True),
)


def message_name(session: Session, topic: str, message_id: str) -> str:
    """The full name of a scheduled message.  Raises Misuse."""
    return f"{session.topic(topic)}/scheduled/{message_id}"


def find(session: Session, *, topic: str, most: int) -> list[Json]:
    return session.api.all_of(f"{session.topic(topic)}/scheduled", "scheduledMessages", most=most)


@calling("move", "broker scheduled move reminders $WAITING --delay 2h")
@_topic
@click.argument("message_id", metavar="ID")
@DELAY
@AT
def move(session: Session, *, topic: str, message_id: str, delay: str | None, at: str | None) -> Shown:
    """Let a message come at another time."""
    wanted = {"deliverTime": moment_of(delay, at)}
    moved = session.api.call("PATCH", message_name(session, topic, message_id), wanted)
    return Shown(data=moved, line=f"Message {message_id} comes at {short_time(moved['deliverTime'])}.")
