"""`broker purge`."""

import sys

import click

from broker.cli.client.api import Json
from broker.cli.client.calling import Session, calling
from broker.cli.client.clock import machine_time
from broker.cli.client.output import Shown
from broker.cli.client.words import time_text
from broker.cli.command_line import Group
from broker.cli.stop import Misuse

_OWN = Group("purge")


@calling(_OWN, "purge", "broker purge billing --before 1h --undoable --yes", "broker purge --topic orders --yes")
@click.argument("subscription", required=False)
@click.option("--topic", metavar="TOPIC", help="All that a topic has, for all its subscriptions.")
@click.option("--before", metavar="TIME", help="Only what was published before: a time, or how long ago (1h).")
@click.option("--undoable", is_flag=True, help="For an hour `broker seek SUB --undo` brings it back.")
@click.option("--yes", is_flag=True, help="Do not ask; only a terminal is asked.")
def purge(
    session: Session, *, subscription: str | None, topic: str | None, before: str | None, undoable: bool, yes: bool
) -> Shown:
    """Drop what a subscription has yet to get; needs this broker."""
    if bool(subscription) == bool(topic):
        raise Misuse("give a subscription, or --topic TOPIC")
    if topic and (before or undoable):
        raise Misuse(
            "--before and --undoable are for subscriptions: a topic is purged of all that it has, for good"
        )
    name = session.topic(topic) if topic else session.subscription(subscription or "")
    if not yes and sys.stdin.isatty():
        click.confirm(f"Drop what {name} has{'' if undoable else ', for good'}?", abort=True, err=True)
    body: Json = {"before": time_text(before, "--before", machine_time())} if before else {}
    answer = session.api.call("POST", f"{name}:purge", body | ({"undoable": True} if undoable else {}))
    undo = f"; `broker seek {subscription} --undo` brings it back" if undoable else ""
    return Shown(data=answer, line=f"Purged {topic or subscription}{undo}.")


COMMANDS = purge
