"""`broker message`."""

import click

from broker.cli.client.api import Json
from broker.cli.client.calling import Session, calling
from broker.cli.client.messages import message_fields
from broker.cli.client.output import Shown
from broker.cli.client.words import leaf, short_time
from broker.cli.command_line import Group

COMMANDS = Group("message", help="One message, and what became of it.")


@calling(COMMANDS, "show", "broker message show $ID", "broker message show $ID --sub billing")
@click.argument("message_id", metavar="ID")
@click.option("--topic", metavar="TOPIC", help="Where it is; without, it is looked for in the project.")
@click.option("--sub", "subscription", metavar="SUB", help="What happened to it there, by its journal.")
def show(session: Session, *, message_id: str, topic: str | None, subscription: str | None) -> Shown:
    """Show a message, and what became of it for each subscription of its topic; needs this broker."""
    if subscription:
        return _timeline(session.api.call("GET", f"{session.subscription(subscription)}/messages/{message_id}"))
    where = session.topic(topic) if topic else session.project
    found = session.api.call("GET", f"{where}/messages/{message_id}")
    fates = {leaf(one["subscription"]): f"{one['state']}: {one['verdict']}" for one in found["subscriptions"]}
    fields = {"topic": found["topic"], **message_fields(found["message"])}
    if "deliverTime" in found:
        fields["comes"] = found["deliverTime"]
    return Shown(data=found, fields=fields | {f"for {name}": fate for name, fate in fates.items()})


def _timeline(found: Json) -> Shown:
    events = found.get("timeline", [])
    rows = [
        [
            short_time(one["time"]),
            one["event"],
            str(one.get("deliveryAttempt", "")),
            _who(one),
            one.get("answer", ""),
        ]
        for one in events
    ]
    nothing = found.get("verdict", "Nothing is written down of it; `extensions.journal` has that done.")
    return Shown(data=found, columns=("time", "event", "attempt", "by", "answer"), rows=rows, nothing=nothing)


def _who(event: Json) -> str:
    return " ".join(event[name] for name in ("principal", "client") if name in event)
