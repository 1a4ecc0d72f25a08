"""`broker scheduled`."""

import click

from broker.cli.client.calling import Session, calling
from broker.cli.client.confirming import YES, confirm
from broker.cli.client.delays import AT, DELAY, moment_of
from broker.cli.client.messages import message_fields
from broker.cli.client.output import Shown
from broker.cli.client.words import pairs_text, short_time
from broker.cli.command_line import Group

COMMANDS = Group("scheduled", help="Messages that are to come later, while they wait.")
_topic = click.argument("topic")
_message = click.argument("message_id", metavar="ID")
_COLUMNS = ("id", "comes", "key", "attributes")


@calling(COMMANDS, "list", "broker scheduled list reminders")
@_topic
@click.option("--max", "most", metavar="N", type=click.IntRange(1), default=100, show_default=True)
def list_(session: Session, *, topic: str, most: int) -> Shown:
    """List what waits for its time on a topic, the first due first."""
    found = session.api.all_of(f"{session.topic(topic)}/scheduled", "scheduledMessages", most=most)
    rows = [
        [
            one["messageId"],
            short_time(one["deliverTime"]),
            one.get("orderingKey", ""),
            pairs_text(one.get("attributes")),
        ]
        for one in found
    ]
    return Shown(
        data=found,
        columns=_COLUMNS,
        rows=rows,
        whole=_COLUMNS[:2],
        cut=_COLUMNS[2:],
        nothing="No message is scheduled.",
    )


@calling(COMMANDS, "show", "broker scheduled show reminders $WAITING")
@_topic
@_message
def show(session: Session, *, topic: str, message_id: str) -> Shown:
    """Show a message that waits."""
    found = session.api.call("GET", _name(session, topic, message_id))
    return Shown(data=found, fields=message_fields(found))


@calling(COMMANDS, "move", "broker scheduled move reminders $WAITING --delay 2h")
@_topic
@_message
@DELAY
@AT
def move(session: Session, *, topic: str, message_id: str, delay: str | None, at: str | None) -> Shown:
    """Let a message come at another time."""
    wanted = {"deliverTime": moment_of(delay, at)}
    moved = session.api.call("PATCH", _name(session, topic, message_id), wanted)
    return Shown(data=moved, line=f"Message {message_id} comes at {short_time(moved['deliverTime'])}.")


@calling(COMMANDS, "cancel", "broker scheduled cancel reminders $WAITING")
@_topic
@_message
@YES
def cancel(session: Session, *, topic: str, message_id: str, yes: bool) -> Shown:
    """Let a message never come; refused once it was published."""
    confirm(f"Cancel the scheduled message {message_id} of {topic}, for good?", yes=yes)
    answer = session.api.call("DELETE", _name(session, topic, message_id))
    return Shown(data=answer, line=f"Cancelled message {message_id}: nobody gets it.")


def _name(session: Session, topic: str, message_id: str) -> str:
    return f"{session.topic(topic)}/scheduled/{message_id}"
