"""`broker pull`."""

import click

from broker.client.api import Json
from broker.client.calling import Session, calling
from broker.client.messages import message_row, shown_messages
from broker.client.output import Shown
from broker.client.pulling import redelivery_text, why_nothing
from broker.client.stop import Misuse


@calling("pull", "broker pull billing --max 2", "broker pull billing --ack", "broker pull fragile --reject")
@click.argument("subscription")
@click.option("--max", "most", metavar="N", type=click.IntRange(1, 1000), default=10, show_default=True)
@click.option("--ack", is_flag=True, help="Acknowledge them, once they are printed.")
@click.option("--nack", is_flag=True, help="Give them back: they are redelivered, as the retry policy says.")
@click.option("--reject", is_flag=True, help="Give them up: they become dead letters; needs this broker.")
@click.option("--wait", is_flag=True, help="Until there are some; the server ends the wait after a while.")
def pull(
    session: Session, *, subscription: str, most: int, ack: bool, nack: bool, reject: bool, wait: bool
) -> Shown | int:
    """Pull messages. Without --ack they are redelivered when their ack deadline has passed."""
    if ack + nack + reject > 1:
        raise Misuse("give one of --ack, --nack and --reject")
    name = session.subscription(subscription)
    received = session.api.pull(name, most, wait=wait)
    rows = [[str(one.get("deliveryAttempt", "")), *message_row(one["message"])] for one in received]
    shown = shown_messages(received, rows, more=("attempt",), nothing="")
    if not received:
        session.out.note(why_nothing(session.api, name))
        return shown
    if not (ack or nack or reject):
        session.out.show(shown)
        session.out.note(redelivery_text(session.api, name, len(received)))
        return 0
    session.out.show(shown)  # first: what cannot be printed is not lost
    body: Json = {"ackIds": [one["ackId"] for one in received]}
    if nack:
        session.api.call("POST", f"{name}:modifyAckDeadline", body | {"ackDeadlineSeconds": 0})
    else:
        session.api.call("POST", f"{name}:{'acknowledge' if ack else 'reject'}", body)
    return 0


COMMANDS = pull
