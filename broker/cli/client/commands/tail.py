"""`broker tail`."""

from collections.abc import Mapping

import click

from broker.cli.client.api import Event, Refused
from broker.cli.client.calling import Session, calling
from broker.cli.client.clock import machine_time
from broker.cli.client.messages import message_line
from broker.cli.client.words import short_time, time_text
from broker.cli.stop import Misuse


@calling("tail", "broker tail orders --max 1", "broker tail --sub billing --since 10m --max 1")
@click.argument("topic", required=False)
@click.option("--sub", "subscription", metavar="SUB", help="What happens to its messages, by its journal.")
@click.option("--filter", "filter_text", metavar="FILTER", help="Only messages that it matches; of a topic.")
@click.option("--since", metavar="TIME", help="From then on, as far as the journal goes; of a subscription.")
@click.option("--max", "most", metavar="N", type=click.IntRange(1), help="End after so many.")
def tail(
    session: Session,
    *,
    topic: str | None,
    subscription: str | None,
    filter_text: str | None,
    since: str | None,
    most: int | None,
) -> int:
    """Print what is published on a topic, as it comes, until Ctrl-C; needs this broker."""
    if bool(topic) == bool(subscription):
        raise Misuse("give a topic, or --sub SUB")
    if topic:
        name, params = session.topic(topic), {"filter": filter_text}
    else:
        start = time_text(since, "--since", machine_time()) if since else None
        name, params = session.subscription(subscription or ""), {"startTime": start}
    return print_events(session, name, params, most)


def print_events(session: Session, name: str, params: Mapping[str, str | None], most: int | None) -> int:
    """Print the events of a topic or subscription as they come, up to `most`.  Returns the exit code."""
    count = 0
    for event in session.api.events(f"{name}:tail", params):
        if event.name == "error":
            error = event.data.get("error", {})
            raise Refused(str(error.get("status", "")), str(error.get("message", "")))
        session.out.row(event.data if event.name != "skipped" else {"skipped": event.data}, _line(event))
        count += event.name != "skipped"
        if count == most:
            return 0
    session.out.note("The server has ended the stream.")
    return 0


def _line(event: Event) -> str:
    data = event.data
    if event.name == "skipped":
        return f"… {data['messages']} messages were left out: they come faster than they can be read"
    if event.name == "journal":
        attempt = f"attempt {data['deliveryAttempt']}" if "deliveryAttempt" in data else ""
        ids = " ".join(_ids(one) for one in data.get("messages", []))
        who = " ".join(data[name] for name in ("principal", "client", "answer") if name in data)
        texts = (short_time(data["time"])[11:], data["event"], ids, attempt, who)
        return "  ".join(text for text in texts if text)
    return message_line(data)


def _ids(run: dict[str, str]) -> str:
    first, last = run["firstMessageId"], run["lastMessageId"]
    return first if first == last else f"{first}…{last}"


COMMANDS = tail
