"""Parses the delivery time of a message as users write it."""

from datetime import datetime, timedelta

import click

from broker.client.api import Refused
from broker.client.calling import Session
from broker.client.clock import machine_time
from broker.client.exit_codes import NOT_ALLOWED
from broker.client.stop import Misuse, Stop
from broker.client.words import duration_text, future_text, seconds_of

DELAY = click.option("--delay", metavar="DURATION", help="So long from now: 90s, 2h, 7d.")
TTL = click.option("--ttl", metavar="DURATION", help="It is delivered for so long and then no more: 30s, 2h.")
AT = click.option("--at", metavar="TIME", help="Then, such as 2026-12-01T08:00:00Z.")


def attributes_of(delay: str | None, at: str | None) -> dict[str, str]:
    """Returns the attributes that delay a message; empty: it is delivered at once.  Raises Misuse."""
    if delay and at:
        raise Misuse("give --delay or --at, not both")
    if delay:
        return {"broker-delay": duration_text(delay, "--delay")}
    return {"broker-deliver-at": future_text(at, "--at")} if at else {}


def moment_of(delay: str | None, at: str | None) -> str:
    """The time itself.  Raises Misuse."""
    if bool(delay) == bool(at):
        raise Misuse("give --delay DURATION or --at TIME")
    if at:
        return future_text(at, "--at")
    moment: datetime = machine_time() + timedelta(seconds=seconds_of(delay or "", "--delay"))
    return future_text(moment.isoformat(), "--delay")


def life_of(ttl: str | None) -> dict[str, str]:
    """Returns the attributes that limit how long a message is delivered.

    Empty: it is delivered as long as it is retained.  Raises Misuse.
    """
    return {"broker-ttl": duration_text(ttl, "--ttl")} if ttl else {}


def check_delayed(session: Session, topic: str) -> None:
    """Raises Stop for a topic that would take it for attributes like any, and publish at once."""
    check_switched_on(session, topic, "delay", "have it published at once", "lets messages come later")


def check_expiring(session: Session, topic: str) -> None:
    """Raises Stop for a topic that would take it for an attribute like any, and deliver it however late."""
    check_switched_on(session, topic, "expiry", "deliver it however late", "lets messages expire")


def check_switched_on(
    session: Session, topic: str, extension: str, without: str, with_it: str, *, option: str = ""
) -> None:
    """Raises Stop for a topic without the extension; `option` of `broker topic update` switches it on."""
    try:
        found = session.api.call("GET", topic)
    except Refused as refused:
        if refused.exit_code == NOT_ALLOWED:
            return  # who may publish need not be allowed to look
        raise
    if not found.get("extensions", {}).get(extension):
        name = topic.rpartition("/")[2]
        option = option or f"--set extensions.{extension}=true"
        raise Stop(f"{topic} would {without}: `broker topic update {name} {option}` {with_it}")
