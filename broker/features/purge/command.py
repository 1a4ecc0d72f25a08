"""`broker purge`."""

from typing import Any

import click

from broker.client.api import Json
from broker.client.calling import Session, calling
from broker.client.clock import machine_time
from broker.client.confirming import YES, Loss, backlog_text, confirm_loss
from broker.client.exit_codes import DONE
from broker.client.operations import finished, wait_for
from broker.client.output import Shown
from broker.client.safeguards import safeguarded, shown_preview, taken
from broker.client.stop import Misuse
from broker.client.words import counted, leaf, time_text


@calling(
    "purge",
    "broker purge billing --filter 'attributes.env = \"test\"' --dry-run",
    "broker purge billing --filter 'attributes.env = \"test\"' --yes",
    "broker purge billing --before 1h --undoable --yes",
    "broker purge billing --expected-count 7 --tolerance-percent 1 --yes",
    "broker purge --topic orders --dry-run",
    "broker purge --topic orders --yes",
)
@click.argument("subscription", required=False)
@click.option("--topic", metavar="TOPIC", help="All that a topic has, for all its subscriptions.")
@click.option("--before", metavar="TIME", help="Only what was published before: a time, or how long ago (1h).")
@click.option("--undoable", is_flag=True, help="For an hour `broker seek SUB --undo` brings it back.")
@click.option("--filter", "filter_text", metavar="FILTER", help="Only messages that it matches: an operation.")
@click.option("--rate", metavar="N", type=click.FloatRange(0.001), help="So many a second at the most (--filter).")
@click.option("--no-wait", is_flag=True, help="Do not wait for its end (--filter).")
@safeguarded
@YES
def purge(
    session: Session,
    *,
    subscription: str | None,
    topic: str | None,
    before: str | None,
    undoable: bool,
    filter_text: str | None,
    rate: float | None,
    no_wait: bool,
    yes: bool,
    **safeguards: Any,
) -> Shown | int:
    """Drop the backlog of a subscription, or all messages of a topic; needs this broker."""
    _check(subscription, topic, before or undoable or filter_text, filter_text, rate or no_wait)
    body: Json = taken(session.api, safeguards)
    dry_run = "validateOnly" in body
    name = session.topic(topic) if topic else session.subscription(subscription or "")
    if not dry_run:
        losses = [Loss("its backlog", lambda: _loss(session, name, is_part=bool(before or filter_text)))]
        confirm_loss(f"Purge {name}{'' if undoable else ', for good'}?", losses, yes=yes)
    body |= {"before": time_text(before, "--before", machine_time())} if before else {}
    if filter_text:
        body |= {"filter": filter_text} | ({"maxMessagesPerSecond": rate} if rate else {})
        return _by_filter(session, name, body, dry_run=dry_run, no_wait=no_wait)
    answer = session.api.call("POST", f"{name}:purge", body | ({"undoable": True} if undoable else {}))
    if dry_run:
        return shown_preview(name, answer)
    undo = f"; `broker seek {subscription} --undo` brings it back" if undoable else ""
    return Shown(data=answer, line=f"Purged {topic or subscription}{undo}.")


def _loss(session: Session, name: str, *, is_part: bool) -> str:
    """Returns what a purge would drop; for a part of the backlog, at most the whole backlog."""
    subscriptions = [name]
    if "/topics/" in name:
        subscriptions = [str(one) for one in session.api.all_of(f"{name}/subscriptions", "subscriptions")]
    texts = {leaf(each): backlog_text(session.api.call("GET", f"{each}/snapshot")) for each in subscriptions}
    found = ", ".join(f"{text or 'nothing'} of {each}" for each, text in texts.items())
    return f"{'up to ' if is_part else ''}{found or 'all retained messages'} would be dropped"


def _check(*given: object) -> None:
    subscription, topic, of_subscription, filter_text, of_filter = map(bool, given)
    if subscription == topic:
        raise Misuse("give a subscription, or --topic TOPIC")
    if topic and (of_subscription or of_filter):
        raise Misuse(
            "--before, --undoable and --filter are for subscriptions: a topic is purged of all it has, for good"
        )
    if of_filter and not filter_text:
        raise Misuse("--rate and --no-wait are for a purge with --filter; without it there is no wait")


def _by_filter(session: Session, name: str, body: Json, *, dry_run: bool, no_wait: bool) -> int:
    started = session.api.call("POST", f"{name}:purge", body)
    if dry_run:
        metadata = started["metadata"]
        count = int(metadata.get("counts", {}).get("purged", "0"))
        least = "At least " if metadata.get("totalIsEstimate") else ""
        line = f"{least}{counted(count, 'message')} would be dropped from {leaf(name)}."
        session.out.show(Shown(data=started, line=line))
        return DONE
    return finished(session.out, started if no_wait else wait_for(session.api, session.out, started))


COMMANDS = purge
