"""`broker dlq`: the dead letters of a subscription, or of a project."""

import base64
from collections import Counter
from collections.abc import Mapping
from typing import Any, BinaryIO

import click

from broker.client.api import Json, NotThere
from broker.client.calling import Session, calling
from broker.client.clock import machine_time
from broker.client.command_line import Group
from broker.client.confirming import YES, confirm
from broker.client.exit_codes import DONE
from broker.client.messages import PREVIEW, message_fields, message_row
from broker.client.operations import finished, wait_for
from broker.client.output import Shown
from broker.client.safeguards import safeguarded, shown_preview, taken
from broker.client.stop import Misuse
from broker.client.words import as_typed, counted, leaf, pairs, short_time, time_text

_subscription = click.argument("subscription")
_or_project = click.argument("subscription", required=False)
_reason = click.option("--reason", metavar="TEXT", help='Only those that failed for it, such as "push 503".')
_filter = click.option("--filter", "filter_text", metavar="FILTER", help="Only letters that it matches.")


@calling(
    "summary",
    "broker dlq summary fragile",
    "broker dlq summary fragile --by attribute:env",
    "broker dlq summary",
    'broker dlq summary --by sourceSubscription,reason --order "newestTime desc"',
)
@_or_project
@click.option(
    "--by", metavar="WHAT", help="reason (the default), status, hour, attribute:NAME; of a project below."
)
@_filter
@click.option("--order", metavar="ORDER", help='Of a project: "count desc" (the default) or "newestTime desc".')
@click.option("--max", "most", metavar="N", type=click.IntRange(1), default=100, show_default=True)
def summary(
    session: Session,
    *,
    subscription: str | None,
    by: str | None,
    filter_text: str | None,
    order: str | None,
    most: int,
) -> Shown:
    """Count dead letters by what they have in common.

    Without SUBSCRIPTION, those of the whole project: by fingerprint (the default), sourceSubscription, sourceTopic,
    reason, status or hour, or several of these with commas between them, and with a filter such as 'reason = nack'.
    """
    if subscription is None:
        return _summary_of_project(session, by=by or "fingerprint", filter_text=filter_text, order=order, most=most)
    if order is not None:
        raise Misuse("--order is of the groups of a project; give no subscription")
    by = by or "reason"
    params = {"groupBy": by, "filter": filter_text}
    found = session.api.call("GET", f"{session.subscription(subscription)}/deadLetters", params=params)
    rows = [
        [one["key"], str(one["count"]), short_time(one["oldestTime"]), short_time(one["newestTime"])]
        for one in found.get("groups", [])[:most]
    ]
    columns = (by, "count", "oldest", "newest")
    if found.get("atLeast"):
        session.out.note(f"Of the first {found['scannedDeadLetterCount']:,} dead letters; there are more.")
    return Shown(data=found, columns=columns, rows=rows, whole=columns[1:], nothing=_nothing(filter_text))


def _summary_of_project(
    session: Session, *, by: str, filter_text: str | None, order: str | None, most: int
) -> Shown:
    params = {"groupBy": by, "filter": filter_text, "orderBy": order}
    found = session.api.all_of(f"{session.project}/deadLetters", "groups", params, most)
    traits = [trait.strip() for trait in by.split(",")]
    shows_cause = "fingerprint" in traits
    rows = [
        [
            *(leaf(one["key"][trait]) if trait.startswith("source") else one["key"][trait] for trait in traits),
            str(one["count"]),
            short_time(one["oldestTime"]),
            short_time(one["newestTime"]),
            *([one["reason"], one.get("response", "")] if shows_cause else ()),
        ]
        for one in found
    ]
    columns = (*traits, "count", "oldest", "newest", *(("reason", "response") if shows_cause else ()))
    whole = ("count", "oldest", "newest")
    return Shown(
        data=found, columns=columns, rows=rows, whole=whole, nothing=_nothing(filter_text, of="The project")
    )


@calling(
    "list",
    "broker dlq list fragile",
    "broker dlq list fragile --reason reject --max 5 --preview 8",
    'broker dlq list --filter "sourceSubscription : fragile"',
)
@_or_project
@_reason
@_filter
@PREVIEW
@click.option("--max", "most", metavar="N", type=click.IntRange(1), default=20, show_default=True)
def list_(
    session: Session,
    *,
    subscription: str | None,
    reason: str | None,
    filter_text: str | None,
    preview: int | None,
    most: int,
) -> Shown:
    """List dead letters, by the ids that the messages had.

    Without SUBSCRIPTION, those of the whole project, the newest first, with a filter such as 'reason = "push 503"'.
    """
    if subscription is None:
        return _list_of_project(session, reason=reason, filter_text=filter_text, preview=preview, most=most)
    path = f"{session.subscription(subscription)}/deadLetters"
    params = {"reason": reason, "filter": filter_text, "previewBytes": preview}
    found = session.api.all_of(path, "deadLetters", params, most)
    rows = [[one["sourceMessageId"], one["reason"], *message_row(_as_it_was(one), one)[2:]] for one in found]
    columns = ("id", "reason", "key", "attributes", "data")
    return Shown(
        data=found,
        columns=columns,
        rows=rows,
        cut=("reason", "key", "attributes", "data"),
        minor=("attributes", "key"),
        nothing=_nothing(reason, filter_text),
    )


def _list_of_project(
    session: Session, *, reason: str | None, filter_text: str | None, preview: int | None, most: int
) -> Shown:
    conditions = [filter_text, f'reason = "{reason}"' if reason else None]
    params = {"filter": " AND ".join(filter(None, conditions)) or None, "previewBytes": preview}
    found = session.api.all_of(f"{session.project}/deadLetters", "deadLetters", params, most)
    rows = [
        [
            one["sourceMessageId"],
            leaf(one["sourceSubscription"]),
            one["reason"],
            one.get("response", ""),
            *message_row(_as_it_was(one), one)[2:],
        ]
        for one in found
    ]
    columns = ("id", "subscription", "reason", "response", "key", "attributes", "data")
    return Shown(
        data=found,
        columns=columns,
        rows=rows,
        cut=("reason", "response", "key", "attributes", "data"),
        minor=("attributes", "key", "response"),
        nothing=_nothing(reason, filter_text, of="The project"),
    )


@calling("show", "broker dlq show fragile $LETTER")
@_subscription
@click.argument("message_id", metavar="ID")
def show(session: Session, *, subscription: str, message_id: str) -> Shown:
    """Show a dead letter, by its message's first id or its own."""
    path, token = f"{session.subscription(subscription)}/deadLetters", ""
    while True:
        page = session.api.call("GET", path, params={"pageToken": token, "pageSize": 1000})
        for one in page.get("deadLetters", []):
            if message_id in (one["sourceMessageId"], one["message"]["messageId"]):
                rest = {name: part for name, part in one.items() if name != "message"}
                return Shown(data=one, fields=rest | {"letter": message_fields(_as_it_was(one))})
        token = page.get("nextPageToken", "")
        if not token:
            raise NotThere(f"{subscription} has no dead letter {message_id}; `broker dlq list` shows what it has")


@calling(
    "redrive",
    "broker dlq redrive fragile --dry-run",
    "broker dlq redrive fragile --target parcels --dry-run",
    "broker dlq redrive fragile --reason reject --rate 500",
)
@_subscription
@click.option("--id", "ids", metavar="ID", multiple=True, help="This one, by its first id or its own; repeatable.")
@click.option("--reason", "reasons", metavar="TEXT", multiple=True, help="Failed for this reason; repeatable.")
@_filter
@click.option("--since", metavar="TIME", help="Dead-lettered from then on: a time, or how long ago (1h).")
@click.option("--until", metavar="TIME", help="Dead-lettered before then.")
@click.option("--rate", metavar="N", type=click.FloatRange(0.001), help="So many messages a second at the most.")
@click.option("--target", metavar="TOPIC", help="Publish them there, as new messages, instead.")
@click.option("--no-wait", is_flag=True, help="Do not wait for its end.")
@safeguarded
def redrive(session: Session, *, subscription: str, target: str | None, no_wait: bool, **chosen: Any) -> int:
    """Bring dead letters back to the subscription, to it alone, under their first ids. Without a choice, all."""
    name = session.subscription(subscription)
    body = taken(session.api, chosen) | _chosen(**chosen)
    if target:
        body["target"] = session.topic(target)
    started = session.api.call("POST", f"{name}:redrive", body)
    if "validateOnly" in body:
        what = f"be sent to {target}" if target else f"come back to {leaf(name)}"
        session.out.show(Shown(data=started, line=_planned(started["metadata"], what)))
        return DONE
    if no_wait:
        return finished(session.out, started)
    return finished(session.out, wait_for(session.api, session.out, started))


@calling(
    "discard",
    "broker dlq discard fragile --id $LETTER --dry-run",
    "broker dlq discard fragile --id $LETTER --yes",
    'broker dlq discard fragile --reason "push 410" --yes',
)
@_subscription
@click.option("--id", "ids", metavar="ID", multiple=True, help="This one, by its first id or its own; repeatable.")
@click.option("--reason", "reasons", metavar="TEXT", multiple=True, help="Failed for this reason; repeatable.")
@_filter
@click.option("--since", metavar="TIME", help="Dead-lettered from then on: a time, or how long ago (1h).")
@click.option("--until", metavar="TIME", help="Dead-lettered before then.")
@safeguarded
@YES
def discard(session: Session, *, subscription: str, yes: bool, **chosen: Any) -> Shown:
    """Settle messages for good: dead letters, or by their ids what is out. Nothing delivers them again."""
    name = session.subscription(subscription)
    safeguards = taken(session.api, chosen)
    body = _chosen(**chosen)
    if bool(body.get("messageIds")) == bool(body.keys() - {"messageIds"}):
        raise Misuse(
            "say which: --id, or a choice of dead letters by --reason, --filter, --since, --until; not both"
        )
    if "validateOnly" in safeguards:
        return shown_preview(name, session.api.call("POST", f"{name}:discard", body | safeguards))
    which = counted(len(ids), "message") if (ids := body.get("messageIds")) else "the chosen dead letters"
    confirm(f"Discard {which} of {leaf(name)}, for good?", yes=yes)
    results: list[Json] = []
    left_alone: set[str] = set()
    token = ""
    while True:
        begun = {"pageToken": token} if token else safeguards  # the count of the first call is that of all
        page = session.api.call("POST", f"{name}:discard", body | begun)
        results += page["results"]
        left_alone |= set(page.get("leftAlone", ()))
        token = page.get("nextPageToken", "")
        if not token:
            break
    counts = Counter(one["outcome"] for one in results)
    data = {"results": results, "counts": {outcome: str(count) for outcome, count in counts.items()}}
    data |= {"leftAlone": sorted(left_alone)} if left_alone else {}
    return Shown(data=data, line=_discarded(name, counts) if counts else _nothing("a choice"))


@calling(
    "edit",
    "broker dlq edit fragile $LETTER --attribute env=test --data 'of stones'",
)
@_subscription
@click.argument("message_id", metavar="ID")
@click.option("--attribute", "attributes", metavar="KEY=VALUE", multiple=True, help="Set it; repeatable.")
@click.option("--remove", "removed", metavar="KEY", multiple=True, help="Remove this attribute; repeatable.")
@click.option("--data", metavar="TEXT", help="In place of its data.")
@click.option(
    "--data-file", metavar="FILE", type=click.File("rb"), help="The same, from a file (-: standard input)."
)
def edit(
    session: Session,
    *,
    subscription: str,
    message_id: str,
    attributes: tuple[str, ...],
    removed: tuple[str, ...],
    data: str | None,
    data_file: BinaryIO | None,
) -> Shown:
    """Bring a dead letter back to the subscription, edited: as a new message, without order against old ones."""
    if data is not None and data_file is not None:
        raise Misuse("give --data or --data-file, not both")
    body: Json = {
        "messageId": message_id,
        "setAttributes": pairs(attributes, "--attribute"),
        "removeAttributes": list(removed),
    }
    content = data_file.read() if data_file is not None else as_typed(data) if data is not None else None
    if content is not None:
        body["data"] = base64.b64encode(content).decode()
    name = session.subscription(subscription)
    found = session.api.call("POST", f"{name}:editDeadLetter", body)
    order = "; it is out of order within its ordering key" if found["outOfOrder"] else ""
    old = ", ".join(found["replaces"])
    return Shown(data=found, line=f"{old} is back in {leaf(name)} as a new message, {found['messageId']}{order}.")


_NOT_DISCARDED = {
    "alreadySettled": "settled before",
    "waiting": "behind too much of the backlog (the same command goes on from there)",
    "leftAlone": "in subscriptions that you may not consume",
    "unknown": "unknown",
}


def _discarded(name: str, counts: Mapping[str, int]) -> str:
    """Says how many messages were discarded, and why the others were not."""
    others = [f"{counts[outcome]:,} {why}" for outcome, why in _NOT_DISCARDED.items() if outcome in counts]
    rest = f" Not discarded: {', '.join(others)}." if others else ""
    return f"Discarded {counted(counts.get('discarded', 0), 'message')} of {leaf(name)}.{rest}"


def _planned(metadata: Json, what: str) -> str:
    """Describes what a redrive would do, from the metadata of its dry run."""
    outstanding = int(metadata.get("counts", {}).get("outstanding", "0"))
    count = int(metadata.get("total", "0")) - outstanding
    most = "Up to " if metadata.get("totalIsEstimate") else ""
    stay = f"; {outstanding:,} are outstanding now, and would stay" if outstanding else ""
    return f"{most}{counted(count, 'message')} would {what}{stay}."


def _nothing(*chosen: str | None, of: str = "It") -> str:
    """Returns the line to print for an empty list of dead letters, of which some were `chosen`."""
    if any(chosen):
        return "No dead letter matches; `broker dlq summary` counts all of them."
    return f"{of} has no dead letters."


def _chosen(**chosen: object) -> Json:
    now = machine_time()
    fields = {
        "messageIds": list(chosen["ids"]) if isinstance(chosen["ids"], tuple) else None,
        "reasons": list(chosen["reasons"]) if isinstance(chosen["reasons"], tuple) else None,
        "filter": chosen["filter_text"],
        "startTime": time_text(str(chosen["since"]), "--since", now) if chosen["since"] else None,
        "endTime": time_text(str(chosen["until"]), "--until", now) if chosen["until"] else None,
        "maxMessagesPerSecond": chosen.get("rate"),
    }
    return {name: value for name, value in fields.items() if value}


_ANSWERS = ("CloudPubSubDeadLetter", "broker-dead-letter-", "broker-source-message-id")


def _as_it_was(dead_letter: Json) -> Json:
    """Returns the attributes without those that a dead letter adds."""
    message: Json = dead_letter["message"]
    attributes = message.get("attributes", {})
    return message | {
        "attributes": {name: text for name, text in attributes.items() if not name.startswith(_ANSWERS)}
    }


COMMANDS = Group(
    "dlq",
    help="Dead letters of a subscription or a project; these need this broker.",
    commands=[summary, list_, show, redrive, discard, edit],
)
