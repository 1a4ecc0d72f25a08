"""The JSON of an entry of the journal of a subscription, which reports and tails show."""

from typing import Any

from broker.model.journal import Entry
from broker.model.timestamps import format_timestamp


def entry_json(entry: Entry) -> dict[str, Any]:
    """Returns the event as JSON, without the message."""
    body: dict[str, Any] = {"time": format_timestamp(entry.time), "event": entry.event}
    if entry.attempt:
        body["deliveryAttempt"] = entry.attempt
    said = {"principal": entry.author.principal, "client": entry.author.client, "answer": entry.answer}
    return body | {name: text for name, text in said.items() if text}
