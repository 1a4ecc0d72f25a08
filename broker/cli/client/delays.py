"""When a message is to come, as people say it."""

from datetime import datetime, timedelta

import click

from broker.cli.client.api import Refused
from broker.cli.client.calling import Session
from broker.cli.client.clock import machine_time
from broker.cli.client.exit_codes import NOT_ALLOWED
from broker.cli.client.words import duration_text, future_text, seconds_of
from broker.cli.stop import Misuse, Stop

DELAY = click.option("--delay", metavar="DURATION", help="So long from now: 90s, 2h, 7d.")
AT = click.option("--at", metavar="TIME", help="Then, such as 2026-12-01T08:00:00Z.")


def attributes_of(delay: str | None, at: str | None) -> dict[str, str]:
    """What a message says of it; empty: it comes at once.  Raises Misuse."""
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


def check_delayed(session: Session, topic: str) -> None:
    """Raises Stop for a topic that would take it for attributes like any, and publish at once."""
    try:
        found = session.api.call("GET", topic)
    except Refused as refused:
        if refused.exit_code == NOT_ALLOWED:
            return  # who may publish need not be allowed to look
        raise
    if not found.get("extensions", {}).get("delay"):
        name = topic.rpartition("/")[2]
        raise Stop(
            f"{topic} would have it published at once: "
            f"`broker topic update {name} --set extensions.delay=true` lets messages come later"
        )
