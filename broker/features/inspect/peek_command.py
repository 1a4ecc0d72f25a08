"""`broker peek`."""

import click

from broker.client.calling import Session, calling
from broker.client.messages import PREVIEW, message_row, shown_messages
from broker.client.output import Shown


@calling("peek", "broker peek billing", "broker peek billing --state waiting --contains order --preview 3")
@click.argument("subscription")
@click.option(
    "--state", metavar="STATE,…", help="Of waiting, outstanding, retrying, blocked, exhausted; default: all."
)
@click.option("--filter", "filter_text", metavar="FILTER", help="Only what it matches.")
@click.option("--contains", metavar="TEXT", help="Only bodies that contain it.")
@PREVIEW
@click.option("--max", "most", metavar="N", type=click.IntRange(1), default=20, show_default=True)
def peek(
    session: Session,
    *,
    subscription: str,
    state: str | None,
    filter_text: str | None,
    contains: str | None,
    preview: int | None,
    most: int,
) -> Shown:
    """List what a subscription has that is not acknowledged, without handing anything out; needs this broker."""
    params = {"state": state, "filter": filter_text, "contains": contains, "previewBytes": preview}
    found = session.api.all_of(f"{session.subscription(subscription)}/messages", "messages", params, most)
    rows = [[one["state"], *message_row(one["message"], one)] for one in found]
    return shown_messages(found, rows, more=("state",), nothing="It has no such message.")


COMMANDS = peek
