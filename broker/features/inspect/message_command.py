"""`broker message`."""

import base64
import re
from typing import Any

import click

from broker.client import terminal
from broker.client.api import Json
from broker.client.calling import Session, calling
from broker.client.command_line import Group
from broker.client.confirming import YES, confirm
from broker.client.delays import AT, DELAY, attributes_of, check_delayed
from broker.client.exit_codes import DONE
from broker.client.messages import message_fields
from broker.client.output import Shown
from broker.client.safeguards import safeguarded, shown_preview, taken
from broker.client.stop import Misuse
from broker.client.words import as_typed, counted, leaf, outcomes_text, pairs, short_time

_RANGE = re.compile(r"[0-9]{1,18}-[0-9]{0,18}|-[0-9]{1,18}")
_LATE = {"outstanding": "out just now", "returned": "came back", "settled": "done with"}


@calling("show", "broker message show $ID", "broker message show $ID --sub billing")
@click.argument("message_id", metavar="ID")
@click.option("--topic", metavar="TOPIC", help="Where it is; without, it is looked for in the project.")
@click.option("--sub", "subscription", metavar="SUB", help="What happened to it there, by its journal.")
def show(session: Session, *, message_id: str, topic: str | None, subscription: str | None) -> Shown:
    """Show a message, and what became of it for each subscription of its topic; needs this broker."""
    if subscription:
        return _timeline(session.api.call("GET", f"{session.subscription(subscription)}/messages/{message_id}"))
    where = session.topic(topic) if topic else session.project
    found = session.api.call("GET", f"{where}/messages/{message_id}")
    reports = {leaf(one["subscription"]): _report(one) for one in found["subscriptions"]}
    fields = {"topic": found["topic"], **message_fields(found["message"])}
    if "deliverTime" in found:
        fields["comes"] = found["deliverTime"]
    return Shown(data=found, fields=fields | {f"for {name}": report for name, report in reports.items()})


@calling(
    "data",
    "broker message data $ID > order.bin",
    "broker message data $ID --topic orders --range 0-2 > begin.bin",
)
@click.argument("message_id", metavar="ID")
@click.option("--topic", metavar="TOPIC", help="Where it is; without, it is looked for in the project.")
@click.option("--range", "range_", metavar="FIRST-LAST", help="Only these bytes, from 0 on; 100-: the rest.")
def data(session: Session, *, message_id: str, topic: str | None, range_: str | None) -> int:
    """Write the data of a message, as it is, to a file; needs this broker."""
    if terminal.is_terminal():
        raise Misuse("the data of a message may be binary, which no terminal can show: redirect it, as in `> FILE`")
    if range_ is not None and not _RANGE.fullmatch(range_):
        raise Misuse(f"--range must be FIRST-LAST, FIRST- or -COUNT, not {range_[:100]!r}")
    if topic:
        name = session.topic(topic)
    else:
        found = session.api.call("GET", f"{session.project}/messages/{message_id}", params={"previewBytes": 0})
        name = found["topic"]
    terminal.write_bytes(session.api.data(f"{name}/messages/{message_id}:data", range_))
    return DONE


@calling("decode", "broker message decode $ENCODED --topic coded")
@click.argument("message_id", metavar="ID")
@click.option("--topic", metavar="TOPIC", required=True, help="Where it is; it has a schema.")
@click.option("--revision", metavar="REVISION", help="Of the schema; without, that of its publish.")
def decode(session: Session, *, message_id: str, topic: str, revision: str | None) -> Shown:
    """Show a message in JSON, by the schema of its topic; needs this broker."""
    path = f"{session.topic(topic)}/messages/{message_id}:decode"
    found = session.api.call("GET", path, params={"revision": revision} if revision else None)
    return Shown(data=found, fields=found)


@calling(
    "retract",
    "broker message retract reminders $WAITING --dry-run",
    "broker message retract reminders $WAITING --yes",
)
@click.argument("topic")
@click.argument("message_ids", metavar="ID...", nargs=-1, required=True)
@safeguarded
@YES
def retract(session: Session, *, topic: str, message_ids: tuple[str, ...], yes: bool, **safeguards: Any) -> Shown:
    """Withdraw messages of a topic: nobody is handed them any more; needs this broker."""
    name = session.topic(topic)
    body = taken(session.api, safeguards) | {"messageIds": list(message_ids)}
    if "validateOnly" in body:
        return shown_preview(name, session.api.call("POST", f"{name}:retract", body))
    confirm(f"Retract {counted(len(message_ids), 'message')} of {leaf(name)}, for good?", yes=yes)
    done = session.api.call("POST", f"{name}:retract", body)
    return Shown(data=done, line=f"Of {leaf(name)}: {outcomes_text(done)}.{_states_text(done)}")


@calling("replace", "broker message replace reminders $WAITING 'Write to them.' --delay 1h")
@click.argument("topic")
@click.argument("message_id", metavar="ID")
@click.argument("text")
@click.option("--attribute", "attributes", metavar="KEY=VALUE", multiple=True, help="Of the new one; repeatable.")
@click.option("--ordering-key", metavar="KEY", help="Of the new one.")
@DELAY
@AT
def replace(
    session: Session,
    *,
    topic: str,
    message_id: str,
    text: str,
    attributes: tuple[str, ...],
    ordering_key: str | None,
    **when: str | None,
) -> Shown:
    """Withdraw a message and publish TEXT in its place, in one step; needs this broker."""
    name = session.topic(topic)
    message: Json = {"data": base64.b64encode(as_typed(text)).decode()}
    later = attributes_of(**when)
    if later:
        check_delayed(session, name)
    given = pairs(attributes, "--attribute") | later
    message |= {"attributes": given} if given else {}
    message |= {"orderingKey": ordering_key} if ordering_key else {}
    done = session.api.call("POST", f"{name}:replace", {"messageId": message_id, "message": message})
    summary = f"{done['outcome']}; {done['replacementId']} stands in its place.{_states_text(done)}"
    return Shown(data=done, line=summary)


def _report(one: Json) -> str:
    cause = f" ({one['deliveryState']})" if "deliveryState" in one else ""
    return f"{one['state']}{cause}: {one['verdict']}"


def _states_text(done: Json) -> str:
    """Returns a sentence about the subscriptions that had received the messages before the retraction."""
    late = [
        f"{leaf(one['subscription'])} had {len(one[state])} ({said})"
        for one in done.get("subscriptions", ())
        for state, said in _LATE.items()
        if state in one
    ]
    return f" Not in time: {', '.join(late)}." if late else ""


def _timeline(found: Json) -> Shown:
    events = found.get("timeline", [])
    rows = [
        [
            short_time(one["time"]),
            one["event"],
            str(one.get("deliveryAttempt", "")),
            _who(one),
            one.get("answer", ""),
        ]
        for one in events
    ]
    columns = ("time", "event", "attempt", "by", "answer")
    nothing = found.get("verdict", "Nothing is written down of it; `extensions.journal` has that done.")
    return Shown(data=found, columns=columns, rows=rows, whole=columns[:3], nothing=nothing)


def _who(event: Json) -> str:
    return " ".join(event[name] for name in ("principal", "client") if name in event)


COMMANDS = Group(
    "message",
    help="One message, and what became of it.",
    commands=[show, data, decode, retract, replace],
)
