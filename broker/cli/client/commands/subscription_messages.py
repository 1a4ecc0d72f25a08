"""The commands of `broker sub` about deliveries: acknowledging by ack id, consumers, and a filter's test."""

from typing import Any

import click

from broker.cli.client.calling import Session, calling
from broker.cli.client.confirming import YES, confirm_loss, counted, losses_of_subscription
from broker.cli.client.filter_test import FILTER_OPTIONS, show_filter_test
from broker.cli.client.output import Shown
from broker.cli.client.words import age_of, duration_text, short_time, whole_seconds
from broker.cli.command_line import Group

COMMANDS = Group("sub")
_subscription = click.argument("subscription")
_ack_ids = click.argument("ack_ids", metavar="ACK_ID...", nargs=-1, required=True)


@calling(COMMANDS, "ack", "broker sub ack billing $ACK_ID")
@_subscription
@_ack_ids
def ack(session: Session, *, subscription: str, ack_ids: tuple[str, ...]) -> Shown:
    """Acknowledge messages by the ack ids that `broker pull --json` prints."""
    return _send(session, subscription, ack_ids, "acknowledge", "Acknowledged")


@calling(COMMANDS, "nack", "broker sub nack billing $ACK_ID", "broker sub nack billing $ACK_ID --delay 30s")
@_subscription
@_ack_ids
@click.option("--delay", metavar="DURATION", help="Redeliver them after so long; needs this broker.")
def nack(session: Session, *, subscription: str, ack_ids: tuple[str, ...], delay: str | None) -> Shown:
    """Give messages back by their ack ids: they are redelivered, as the retry policy says."""
    if delay is None:
        return _send(session, subscription, ack_ids, "modifyAckDeadline", "Gave back", ackDeadlineSeconds=0)
    return _send(session, subscription, ack_ids, "nack", "Gave back", delay=duration_text(delay, "--delay"))


@calling(COMMANDS, "reject", "broker sub reject fragile $ACK_ID")
@_subscription
@_ack_ids
def reject(session: Session, *, subscription: str, ack_ids: tuple[str, ...]) -> Shown:
    """Move messages to the dead-letter topic by their ack ids; needs this broker."""
    return _send(session, subscription, ack_ids, "reject", "Rejected")


@calling(COMMANDS, "extend", "broker sub extend billing $ACK_ID --by 1m")
@_subscription
@_ack_ids
@click.option("--by", "deadline", metavar="DURATION", required=True, help="From now on, up to 10m.")
def extend(session: Session, *, subscription: str, ack_ids: tuple[str, ...], deadline: str) -> Shown:
    """Extend the ack deadline of messages by their ack ids."""
    seconds = whole_seconds(deadline, "--by")
    return _send(
        session, subscription, ack_ids, "modifyAckDeadline", "Extended the deadline of", ackDeadlineSeconds=seconds
    )


@calling(COMMANDS, "consumers", "broker sub consumers billing")
@_subscription
@click.option("--max", "most", metavar="N", type=click.IntRange(1, 1000), default=100, show_default=True)
def consumers(session: Session, *, subscription: str, most: int) -> Shown:
    """List the clients that pull or stream, the slowest first; needs this broker."""
    path = f"{session.subscription(subscription)}/consumers"
    found = session.api.call("GET", path, params={"pageSize": most}).get("consumers", [])
    rows = [
        [
            one.get("clientId") or one.get("principal") or one.get("address", ""),
            "stream" if one["kind"] == "STREAMING_PULL" else "pull",
            str(one["outstandingMessages"]),
            age_of(one.get("oldestOutstandingMessageAge")),
            f"{one['acksPerSecond']:.1f}",
            short_time(one["startTime"]),
        ]
        for one in found
    ]
    columns = ("client", "by", "outstanding", "oldest", "acks/s", "since")
    nothing = "No client has pulled or streamed lately."
    return Shown(data=found, columns=columns, rows=rows, whole=columns[1:], nothing=nothing)


@calling(COMMANDS, "position", "broker sub position billing")
@_subscription
def position(session: Session, *, subscription: str) -> Shown:
    """Show the backlog, and where the subscription stands in each shard; needs this broker."""
    found = session.api.call("GET", f"{session.subscription(subscription)}/snapshot")
    return Shown(data=found, fields=found)


@calling(COMMANDS, "detach", "broker sub detach audit")
@_subscription
@YES
def detach(session: Session, *, subscription: str, yes: bool) -> Shown:
    """Detach a subscription from its topic: its backlog is dropped and it gets nothing more."""
    name = session.subscription(subscription)
    confirm_loss(f"Detach the subscription {name}?", losses_of_subscription(session.api, name), yes=yes)
    return Shown(data=session.api.call("POST", f"{name}:detach", {}), line=f"Detached {name}.")


@calling(
    COMMANDS, "test-filter", "broker sub test-filter billing", "broker sub test-filter billing 'attributes:env'"
)
@_subscription
@click.argument("filter_text", metavar="[FILTER]", default="")
@FILTER_OPTIONS
def test_filter(session: Session, *, subscription: str, filter_text: str, **options: Any) -> Shown:
    """Show which retained messages of a subscription FILTER matches, or all of them; needs this broker."""
    return show_filter_test(session, session.subscription(subscription), filter_text, **options)


def _send(
    session: Session, subscription: str, ack_ids: tuple[str, ...], verb: str, done: str, **fields: object
) -> Shown:
    name = session.subscription(subscription)
    answer = session.api.call("POST", f"{name}:{verb}", {"ackIds": list(ack_ids), **fields})
    return Shown(data=answer, line=f"{done} {counted(len(ack_ids), 'message')}.")
