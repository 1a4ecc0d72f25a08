"""Prints the events of a topic or subscription as they arrive."""

from collections.abc import Mapping

from broker.client.api import Event, Refused
from broker.client.calling import Session
from broker.client.messages import message_line
from broker.client.words import short_time


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
