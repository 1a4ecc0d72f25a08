"""The commands of `broker sub` that broker/cli/resources.py does not generate."""

from typing import Any

import click

from broker.client.api import Json
from broker.client.calling import Session, calling
from broker.client.fields import LABEL, SET, assign, given
from broker.client.filter_test import FILTER_OPTIONS, show_filter_test
from broker.client.output import Shown
from broker.client.stop import Stop
from broker.client.words import (
    age_of,
    counted,
    duration_text,
    leaf,
    outcomes_text,
    pairs,
    short_time,
    whole_seconds,
)

_subscription = click.argument("subscription")
_ack_ids = click.argument("ack_ids", metavar="ACK_ID...", nargs=-1, required=True)
_message_ids = click.argument("ids", metavar="ID...", nargs=-1, required=True)
_DURATIONS = {
    "retention": ("--retention", "messageRetentionDuration"),
    "min_backoff": ("--min-backoff", "retryPolicy.minimumBackoff"),
    "max_backoff": ("--max-backoff", "retryPolicy.maximumBackoff"),
}
OPTIONS = (  # of `create` and `update`
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
CREATE_OPTIONS = (
    click.option("--topic", metavar="TOPIC", required=True, help="Whose messages it gets, from now on."),
    click.option("--filter", "filter_text", metavar="FILTER", help="Only what it matches; set-filter changes it."),
    click.option(
        "--ordered", is_flag=True, help="Messages of an ordering key come in order; cannot be changed later."
    ),
    *OPTIONS,
)


def find(session: Session, *, topic: str | None) -> list[Json]:
    """The subscriptions of the project, or those of a topic."""
    found = session.api.all_of(f"{session.project}/subscriptions", "subscriptions")
    return [one for one in found if one.get("topic") == session.topic(topic)] if topic else found


def make_create_body(
    session: Session, *, topic: str, filter_text: str | None, ordered: bool, **options: Any
) -> Json:
    """Raises Misuse."""
    first: Json = {"topic": session.topic(topic)}
    if filter_text:
        first["filter"] = filter_text
    if ordered:
        first["enableMessageOrdering"] = True
    return first | make_body(session, **options)


@calling(
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


def make_body(session: Session, *, labels: tuple[str, ...], assigned: tuple[str, ...], **options: Any) -> Json:
    """The fields of a subscription that the options give.  Raises Misuse."""
    endpoint, dead_letter_topic, expires = (
        options["push_endpoint"],
        options["dead_letter_topic"],
        options["expires"],
    )
    deadline = options["ack_deadline"]
    fields: Json = {
        "ackDeadlineSeconds": whole_seconds(deadline, "--ack-deadline") if deadline else None,
        "retainAckedMessages": options["retain_acked"],
        "enableExactlyOnceDelivery": options["exactly_once"],
        "deadLetterPolicy.deadLetterTopic": session.topic(dead_letter_topic) if dead_letter_topic else None,
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


def warn_if_unread(session: Session, sent: Json, subscription: Json) -> None:
    """Warns if nobody reads the dead-letter topic that was given: Google's answer has no room for a warning."""
    topic = subscription.get("deadLetterPolicy", {}).get("deadLetterTopic", "")
    if not topic or "deadLetterPolicy" not in sent:
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


def state(subscription: Json) -> str:
    return "PAUSED" if "pause" in subscription else str(subscription.get("state", ""))


def way_of_delivery(subscription: Json) -> str:
    if subscription.get("detached"):
        return "detached"
    return "push" if subscription.get("pushConfig", {}).get("pushEndpoint") else "pull"


@calling("ack", "broker sub ack billing $ACK_ID")
@_subscription
@_ack_ids
def ack(session: Session, *, subscription: str, ack_ids: tuple[str, ...]) -> Shown:
    """Acknowledge messages by the ack ids that `broker pull --json` prints."""
    return _send(session, subscription, ack_ids, "acknowledge", "Acknowledged")


@calling("nack", "broker sub nack billing $ACK_ID", "broker sub nack billing $ACK_ID --delay 30s")
@_subscription
@_ack_ids
@click.option("--delay", metavar="DURATION", help="Redeliver them after so long; needs this broker.")
def nack(session: Session, *, subscription: str, ack_ids: tuple[str, ...], delay: str | None) -> Shown:
    """Give messages back by their ack ids: they are redelivered, as the retry policy says."""
    if delay is None:
        return _send(session, subscription, ack_ids, "modifyAckDeadline", "Gave back", ackDeadlineSeconds=0)
    return _send(session, subscription, ack_ids, "nack", "Gave back", delay=duration_text(delay, "--delay"))


@calling("reject", "broker sub reject fragile $ACK_ID")
@_subscription
@_ack_ids
def reject(session: Session, *, subscription: str, ack_ids: tuple[str, ...]) -> Shown:
    """Move messages to the dead-letter topic by their ack ids; needs this broker."""
    return _send(session, subscription, ack_ids, "reject", "Rejected")


@calling("release", "broker sub release fragile $ID")
@_subscription
@_message_ids
def release(session: Session, *, subscription: str, ids: tuple[str, ...]) -> Shown:
    """Take messages from the consumers that hold them: they are delivered again at once; needs this broker."""
    return _act_on(session, subscription, ids, "release")


@calling("dead-letter", "broker sub dead-letter fragile $ID")
@_subscription
@_message_ids
def dead_letter(session: Session, *, subscription: str, ids: tuple[str, ...]) -> Shown:
    """Move messages that are held or retried to the dead-letter topic by their ids; needs this broker."""
    return _act_on(session, subscription, ids, "deadLetter")


def _act_on(session: Session, subscription: str, ids: tuple[str, ...], verb: str) -> Shown:
    name = session.subscription(subscription)
    answer = session.api.call("POST", f"{name}:{verb}", {"messageIds": list(ids)})
    return Shown(data=answer, line=f"Of {leaf(name)}: {outcomes_text(answer)}.")


@calling("extend", "broker sub extend billing $ACK_ID --by 1m")
@_subscription
@_ack_ids
@click.option("--by", "deadline", metavar="DURATION", required=True, help="From now on, up to 10m.")
def extend(session: Session, *, subscription: str, ack_ids: tuple[str, ...], deadline: str) -> Shown:
    """Extend the ack deadline of messages by their ack ids."""
    seconds = whole_seconds(deadline, "--by")
    return _send(
        session, subscription, ack_ids, "modifyAckDeadline", "Extended the deadline of", ackDeadlineSeconds=seconds
    )


@calling("consumers", "broker sub consumers billing")
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


@calling("test-filter", "broker sub test-filter billing", "broker sub test-filter billing 'attributes:env'")
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
