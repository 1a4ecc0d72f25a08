"""`broker sub`."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from broker.cli.client.api import Json
from broker.cli.client.calling import Session, calling
from broker.cli.client.commands import subscription_messages
from broker.cli.client.confirming import YES, confirm_loss, losses_of_subscription
from broker.cli.client.fields import LABEL, SET, assign, given
from broker.cli.client.output import Shown
from broker.cli.client.updates import update_resource
from broker.cli.client.words import duration_text, leaf, pairs, whole_seconds
from broker.cli.command_line import Group
from broker.cli.stop import Misuse, Stop

COMMANDS = Group("sub", help="Subscriptions: who gets the messages of a topic, and how.")

F = TypeVar("F", bound=Callable[..., Any])
_subscription = click.argument("subscription")
_DURATIONS = {
    "retention": ("--retention", "messageRetentionDuration"),
    "min_backoff": ("--min-backoff", "retryPolicy.minimumBackoff"),
    "max_backoff": ("--max-backoff", "retryPolicy.maximumBackoff"),
}
_MUTABLE = (
    click.option("--ack-deadline", metavar="DURATION", help="How long a consumer has to acknowledge: 10s to 10m."),
    click.option("--retention", metavar="DURATION", help="Keep what is not acknowledged so long; default 7d."),
    click.option("--retain-acked/--drop-acked", default=None, help="Keep what is acknowledged, to be sought back."),
    click.option(
        "--expires", metavar="DURATION", help="Delete it when nobody uses it so long, or never; default 31d."
    ),
    click.option("--exactly-once/--at-least-once", default=None, help="What is acknowledged never comes again."),
    click.option("--dead-letter-topic", metavar="TOPIC", help="Where what fails again and again is published."),
    click.option("--max-attempts", metavar="N", type=int, help="How often it fails before that, 5 to 100."),
    click.option("--min-backoff", metavar="DURATION", help="The wait before what failed comes again."),
    click.option("--max-backoff", metavar="DURATION", help="The longest such wait."),
    click.option("--push-endpoint", metavar="URL", help="Push messages there; '' for pull."),
    LABEL,
    SET,
)


def _mutable(function: F) -> F:
    for option in reversed(_MUTABLE):
        function = option(function)
    return function


@calling(COMMANDS, "list", "broker sub list", "broker sub list --topic orders --json")
@click.option("--topic", metavar="TOPIC", help="Only those of this topic.")
def list_(session: Session, *, topic: str | None) -> Shown:
    """List the subscriptions of a project."""
    found = session.api.all_of(f"{session.project}/subscriptions", "subscriptions")
    if topic:
        found = [one for one in found if one.get("topic") == session.topic(topic)]
    rows = [[leaf(s["name"]), leaf(s["topic"]), _state(s), _how(s), s.get("filter", "")] for s in found]
    nothing = "There is no subscription; `broker sub create NAME --topic TOPIC` makes one."
    columns = ("subscription", "topic", "state", "by", "filter")
    whole, minor = ("topic", "state"), ("filter", "by", "topic")
    return Shown(data=found, columns=columns, rows=rows, whole=whole, minor=minor, nothing=nothing)


@calling(
    COMMANDS,
    "create",
    "broker sub create billing --topic orders",
    "broker sub create audit --topic orders --filter 'attributes.env=\"prod\"'",
)
@_subscription
@click.option("--topic", metavar="TOPIC", required=True, help="Whose messages it gets, from now on.")
@click.option("--filter", "filter_text", metavar="FILTER", help="Only what it matches; set-filter changes it.")
@click.option("--ordered", is_flag=True, help="Messages of an ordering key come in order; cannot be changed later.")
@_mutable
def create(
    session: Session, *, subscription: str, topic: str, filter_text: str | None, ordered: bool, **options: Any
) -> Shown:
    """Make a subscription; it gets what is published from then on."""
    name = session.subscription(subscription)
    first: Json = {"topic": session.topic(topic)}
    if filter_text:
        first["filter"] = filter_text
    if ordered:
        first["enableMessageOrdering"] = True
    made = session.api.call("PUT", name, first | _body(session, **options))
    _warn_if_unread(session, made)
    return Shown(data=made, line=f"Created the subscription {name}.")


@calling(COMMANDS, "show", "broker sub show billing")
@_subscription
def show(session: Session, *, subscription: str) -> Shown:
    """Show a subscription."""
    found = session.api.call("GET", session.subscription(subscription))
    return Shown(data=found, fields=found)


@calling(
    COMMANDS,
    "update",
    "broker sub update billing --ack-deadline 30 --max-backoff 5m",
    "broker sub update billing --clear retryPolicy",
)
@_subscription
@_mutable
@click.option("--clear", "cleared", metavar="FIELD", multiple=True, help="Back to its default. Repeatable.")
def update(session: Session, *, subscription: str, cleared: tuple[str, ...], **options: Any) -> Shown:
    """Change what is named; the rest stays."""
    body = _body(session, **options)
    if not body and not cleared:
        raise Misuse("nothing to change: give an option such as --ack-deadline, --set or --clear")
    name = session.subscription(subscription)
    changed = update_resource(session.api, name, "subscription", body, cleared)
    if "deadLetterPolicy" in body:
        _warn_if_unread(session, changed)
    return Shown(data=changed, line=f"Changed the subscription {name}.")


@calling(
    COMMANDS,
    "set-filter",
    "broker sub set-filter audit attributes:env --dry-run",
    "broker sub set-filter audit attributes:env",
)
@_subscription
@click.argument("filter_text", metavar="FILTER")
@click.option("--dry-run", is_flag=True, help="Count what it would change among the newest messages.")
def set_filter(session: Session, *, subscription: str, filter_text: str, dry_run: bool) -> Shown:
    """Change the filter for messages published from now on; '' removes it. Needs this broker.

    Earlier messages keep the verdict of the filter that they were published under, whether delivered yet or not.
    """
    name = session.subscription(subscription)
    asked = {"filter": filter_text} | ({"validateOnly": True} if dry_run else {})
    answer = session.api.call("POST", f"{name}:setFilter", asked)
    return Shown(data=answer, lines=_change_lines(name, answer))


def _change_lines(name: str, answer: Json) -> list[str]:
    if not answer["changed"]:
        return [f"{name} has this filter already."]
    if (preview := answer.get("preview")) is None:
        return [f"Changed the filter of {name}", f"for messages published from {answer['effectiveTime']} on."]
    return [
        f"Nothing was changed. Of the newest {preview['scannedMessageCount']:,} messages",
        f"  {preview['previouslyMatchedMessageCount']:,} match the present filter",
        f"  {preview['matchedMessageCount']:,} match the new filter",
        f"  {preview['newlyMatchedMessageCount']:,} match the new filter alone",
        f"  {preview['noLongerMatchedMessageCount']:,} match the present filter alone",
    ]


@calling(COMMANDS, "delete", "broker sub delete audit")
@_subscription
@YES
def delete(session: Session, *, subscription: str, yes: bool) -> Shown:
    """Delete a subscription with its backlog."""
    name = session.subscription(subscription)
    confirm_loss(f"Delete the subscription {name}?", losses_of_subscription(session.api, name), yes=yes)
    return Shown(data=session.api.call("DELETE", name), line=f"Deleted the subscription {name}.")


@calling(COMMANDS, "pause", "broker sub pause billing --reason 'The database is moved.'")
@_subscription
@click.option("--reason", metavar="TEXT", default="", help="Is shown to whoever asks.")
def pause(session: Session, *, subscription: str, reason: str) -> Shown:
    """Hand out nothing, to pulls, streams and endpoints, until it is resumed. Needs this broker."""
    name = session.subscription(subscription)
    return Shown(data=session.api.call("POST", f"{name}:pause", {"reason": reason}), line=f"Paused {name}.")


@calling(COMMANDS, "resume", "broker sub resume billing")
@_subscription
def resume(session: Session, *, subscription: str) -> Shown:
    """End a pause, whoever began it."""
    name = session.subscription(subscription)
    return Shown(data=session.api.call("POST", f"{name}:resume", {}), line=f"Resumed {name}.")


def _body(session: Session, *, labels: tuple[str, ...], assigned: tuple[str, ...], **options: Any) -> Json:
    endpoint, letters, expires = options["push_endpoint"], options["dead_letter_topic"], options["expires"]
    deadline = options["ack_deadline"]
    fields: Json = {
        "ackDeadlineSeconds": whole_seconds(deadline, "--ack-deadline") if deadline else None,
        "retainAckedMessages": options["retain_acked"],
        "enableExactlyOnceDelivery": options["exactly_once"],
        "deadLetterPolicy.deadLetterTopic": session.topic(letters) if letters else None,
        "deadLetterPolicy.maxDeliveryAttempts": options["max_attempts"],
        "labels": pairs(labels, "--label"),
    }
    for option, (typed, path) in _DURATIONS.items():
        if options[option]:
            fields[path] = duration_text(options[option], typed)
    body = given(fields)
    if expires:
        body["expirationPolicy"] = {} if expires == "never" else {"ttl": duration_text(expires, "--expires")}
    if endpoint is not None:
        body["pushConfig"] = {"pushEndpoint": endpoint} if endpoint else {}
    return assign(body, assigned)


def _warn_if_unread(session: Session, subscription: Json) -> None:
    """Ask who subscribes to its dead-letter topic: Google's answer has no room for a warning."""
    topic = subscription.get("deadLetterPolicy", {}).get("deadLetterTopic", "")
    if not topic:
        return
    try:
        readers = session.api.call("GET", f"{topic}/subscriptions", params={"pageSize": 1})
    except Stop:  # whoever may create a subscription may not be allowed to list those of that topic
        return
    if not readers.get("subscriptions"):
        session.out.note(
            f"Warning: {leaf(topic)} has no subscription: nobody reads the dead letters, and they are lost after "
            f"seven days. `broker sub create {leaf(topic)} --topic {leaf(topic)}` makes one."
        )


def _state(subscription: Json) -> str:
    return "PAUSED" if "pause" in subscription else str(subscription.get("state", ""))


def _how(subscription: Json) -> str:
    if subscription.get("detached"):
        return "detached"
    return "push" if subscription.get("pushConfig", {}).get("pushEndpoint") else "pull"


COMMANDS.add_all(subscription_messages.COMMANDS)
