"""Actions on dead letters: those that a subscription gave up."""

from base64 import b64decode
from collections.abc import Mapping, Sequence

from broker.console.actions import reading
from broker.console.actions.action import (
    CURRENT,
    Action,
    Call,
    Change,
    Field,
    Json,
    Receipt,
    Target,
    Values,
    Weight,
)
from broker.console.actions.common import (
    FILTER,
    RATE,
    SUBSCRIPTION,
    chosen,
    command,
    encoded,
    full_name,
    operation,
    outcomes,
)
from broker.console.actions.differences import differences

_MOST_EDITED = 100_000  # bytes of a body that the form has at first
_UNSEEN: Json = {"masked": True}
_CHOICE = [
    Field(
        name="reason",
        label="Reasons",
        kind="area",
        read=reading.lines,
        help="One a line, as the list of dead letters has them. Empty: all.",
    ),
    FILTER,
    Field(name="messageIds", label="Message ids", kind="area", read=reading.ids),
    Field(name="startTime", label="Dead-lettered since", kind="time"),
    Field(name="endTime", label="And until", kind="time"),
]
_OPTIONS = {
    "reason": "reason",
    "filter": "filter",
    "messageIds": "id",
    "startTime": "since",
    "endTime": "until",
}


def _choice(values: Values) -> Json:
    body = chosen(values, "filter", "messageIds", "startTime", "endTime")
    return body | ({"reasons": values["reason"]} if "reason" in values else {})


def _redrive(target: Target, values: Values) -> Call:
    body = _choice(values) | chosen(values, RATE.name)
    if "target" in values:
        body["target"] = full_name(target, "topics", values["target"])
    return Call("POST", f"{target.name}:redrive", body)


def _discarded(target: Target, _: Values, answer: Json) -> Receipt:
    more = " There are more: discard again." if answer.get("nextPageToken") else ""
    return Receipt(outcomes(f"Messages of {target.id}", answer) + more, f"{target.name}/deadLetters")


def _read_message(target: Target, texts: Mapping[str, str]) -> Call | None:
    message_id = texts.get("messageId", "").strip()
    if not message_id or "/" in message_id:  # which is no id
        return None
    return Call("GET", f"{target.project}/messages/{message_id}", query={"previewBytes": str(_MOST_EDITED)})


def _body_of(found: Json) -> str | None:
    """Return the body of a message; None if a form cannot have it as it is, or the viewer may not see all of it."""
    if found.get("masked") or int(found.get("dataSize", 0)) > _MOST_EDITED:
        return None
    try:
        text = b64decode(found.get("message", {}).get("data", "")).decode()
    except ValueError:
        return None
    return None if "\r" in text or "\0" in text else text  # browsers change the ends of lines


def _edit_differences(found: Json, values: Values) -> Sequence[Change]:
    """Return the lines that differ: attributes first, then those of the body."""
    message = found.get("message", {})
    before: Mapping[str, str] = message.get("attributes", {})
    removed = values.get("removeAttributes", ())
    after = {name: value for name, value in before.items() if name not in removed} | values.get("setAttributes", {})
    attributes = differences(reading.pair_lines(before), reading.pair_lines(after))
    body = _body_of(found)
    if "data" not in values or body is None:
        return attributes
    return [*attributes, *differences(body, values["data"])]


def _edit(target: Target, values: Values) -> Call:
    body = {"messageId": values["messageId"], **chosen(values, "setAttributes", "removeAttributes")}
    if "data" in values and values["data"] != _body_of(values.get(CURRENT, _UNSEEN)):
        body["data"] = encoded(values["data"])
    return Call("POST", f"{target.name}:editDeadLetter", body)


def _edited(target: Target, values: Values, answer: Json) -> Receipt:
    message_id = answer.get("messageId", "")
    text = f"Returned {values['messageId']} to {target.id}, edited, as message {message_id}."
    return Receipt(text, f"{target.name}/deadLetters")


ACTIONS: Sequence[Action] = [
    Action(
        on=SUBSCRIPTION,
        verb="redrive",
        rpc="Redrive",
        permission="pubsub.subscriptions.consume",
        title="Redrive dead letters",
        label="Redrive {count}",
        weight=Weight.BOUNDED,
        has_preview=True,
        shown_on=("", "/deadLetters"),
        help="They come back to this subscription alone, under their first ids, and their attempts begin anew.",
        fields=[
            *_CHOICE,
            RATE,
            Field(name="target", label="To a topic, in place of the subscription", help="As new messages."),
        ],
        call=_redrive,
        receipt=operation("Redriving dead letters of {target}."),
        command=command("dlq redrive {target}", maxMessagesPerSecond="rate", target="target", **_OPTIONS),
    ),
    Action(
        on=SUBSCRIPTION,
        verb="discard",
        rpc="Discard",
        permission="pubsub.subscriptions.consume",
        title="Discard dead letters",
        label="Discard {count}",
        weight=Weight.LOSSY,
        has_preview=True,
        shown_on=("/deadLetters",),
        help="They are settled for good: nobody is handed them any more.",
        fields=_CHOICE,
        call=lambda target, values: Call("POST", f"{target.name}:discard", _choice(values)),
        receipt=_discarded,
        command=command("dlq discard {target} --yes", **_OPTIONS),
    ),
    Action(
        on=SUBSCRIPTION,
        verb="editDeadLetter",
        rpc="EditDeadLetter",
        permission="pubsub.subscriptions.consume",
        title="Edit a dead letter and return it",
        label="Return the edited message",
        shown_on=(),
        help="It comes back as a new message, with an id of its own. What is left empty stays as it is.",
        reads=_read_message,
        may_do_without=True,
        initial=lambda found: {"data": _body_of(found) or ""},
        changes=_edit_differences,
        fields=[
            Field(name="messageId", label="Message id", required=True),
            Field(name="data", label="New body", kind="area"),
            Field(
                name="setAttributes",
                label="Set attributes",
                kind="area",
                read=reading.pairs,
                placeholder="kind=order",
            ),
            Field(name="removeAttributes", label="Remove attributes", read=reading.ids),
        ],
        call=_edit,
        receipt=_edited,
        command=command(
            "dlq edit {target} {messageId}", setAttributes="attribute", removeAttributes="remove", data="data"
        ),
    ),
]
