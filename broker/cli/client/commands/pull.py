"""`broker pull`."""

import click

from broker.cli.client.calling import Session, calling
from broker.cli.client.messages import message_row, shown_messages
from broker.cli.client.output import Shown
from broker.cli.command_line import Group

_OWN = Group("pull")


@calling(_OWN, "pull", "broker pull billing --max 2", "broker pull billing --ack")
@click.argument("subscription")
@click.option("--max", "most", metavar="N", type=click.IntRange(1, 1000), default=10, show_default=True)
@click.option("--ack", is_flag=True, help="Acknowledge them, once they are printed.")
@click.option("--wait", is_flag=True, help="Until there are some; the server ends the wait after a while.")
def pull(session: Session, *, subscription: str, most: int, ack: bool, wait: bool) -> Shown | int:
    """Pull messages. Without --ack they come again when their ack deadline has passed."""
    name = session.subscription(subscription)
    received = session.api.pull(name, most, wait=wait)
    rows = [[str(one.get("deliveryAttempt", "")), *message_row(one["message"])] for one in received]
    shown = shown_messages(received, rows, more=("attempt",), nothing="There is no message to hand out just now.")
    if not ack or not received:
        return shown
    session.out.show(shown)  # first: what cannot be printed is not lost
    session.api.call("POST", f"{name}:acknowledge", {"ackIds": [one["ackId"] for one in received]})
    return 0


COMMANDS = pull
