"""Notes on the answer of a pull: why it is empty, and when its messages are redelivered."""

from datetime import timedelta

from broker.client.api import Api, Json, NotKnown, Refused
from broker.client.clock import machine_time
from broker.client.words import leaf, rfc3339, short_time


def redelivery_text(api: Api, name: str, count: int) -> str:
    """Says when the messages are redelivered that a subscription has just delivered."""
    try:
        deadline = api.call("GET", name).get("ackDeadlineSeconds", 0)
    except (Refused, NotKnown):  # a caller may be allowed to pull and not to read the subscription
        deadline = 0
    when = "when the ack deadline has passed"
    if deadline:
        at = short_time(rfc3339(machine_time() + timedelta(seconds=deadline)))
        when = f"at {at} (ack deadline {deadline} s)"
    messages = "This message is" if count == 1 else f"These {count:,} messages are"
    return (
        f"{messages} redelivered {when} unless acknowledged: use --ack, or `broker sub ack` with the ack ids "
        "that --json prints."
    )


def why_nothing(api: Api, name: str) -> str:
    """Why a pull has brought no messages."""
    try:
        position: Json = api.call("GET", f"{name}/snapshot")
    except (Refused, NotKnown):  # another server, or a caller that may pull and nothing else
        position = {}
    if not position.get("paused"):
        return "There is no message to deliver now."
    since = f" since {short_time(position['pauseTime'])}" if "pauseTime" in position else ""
    by = f" by {position['pausedBy']}" if "pausedBy" in position else ""
    reason = f": {position['pausedReason']}" if position.get("pausedReason") else ""
    summary = f"{leaf(name)} is paused{since}{by}{reason}".rstrip(".")
    return f"{summary}. `broker sub resume {leaf(name)}` ends the pause."
