"""`broker tail`."""

import click

from broker.client.calling import Session, calling
from broker.client.clock import machine_time
from broker.client.event_stream import print_events
from broker.client.messages import PREVIEW
from broker.client.stop import Misuse
from broker.client.words import time_text


@calling(
    "tail",
    "broker tail orders --max 1",
    "broker tail orders --since 1h --preview 3 --max 1",
    "broker tail --sub billing --since 10m --max 1",
)
@click.argument("topic", required=False)
@click.option("--sub", "subscription", metavar="SUB", help="What happens to its messages, by its journal.")
@click.option("--filter", "filter_text", metavar="FILTER", help="Only messages that it matches; of a topic.")
@click.option("--since", metavar="TIME", help="From then on, as far as the log or the journal goes.")
@PREVIEW
@click.option("--max", "most", metavar="N", type=click.IntRange(1), help="End after so many.")
def tail(
    session: Session,
    *,
    topic: str | None,
    subscription: str | None,
    filter_text: str | None,
    since: str | None,
    preview: int | None,
    most: int | None,
) -> int:
    """Print what is published on a topic, as it comes, until Ctrl-C; needs this broker."""
    if bool(topic) == bool(subscription):
        raise Misuse("give a topic, or --sub SUB")
    params: dict[str, str | None] = {"startTime": time_text(since, "--since", machine_time()) if since else None}
    if topic:
        name = session.topic(topic)
        params |= {"filter": filter_text, "previewBytes": None if preview is None else str(preview)}
    else:
        name = session.subscription(subscription or "")
    return print_events(session, name, params, most)


COMMANDS = tail
