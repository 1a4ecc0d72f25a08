"""Parts that several actions share: fields, calls and receipts."""

import base64
from collections.abc import Callable, Mapping, Sequence
from shlex import quote
from typing import Any

from broker.client.fields import snake
from broker.client.words import in_words, leaf
from broker.console.actions import reading
from broker.console.actions.action import Call, Field, Json, Note, Receipt, Target, Values

TOPIC = "projects/{project}/topics/{topic}"
SUBSCRIPTION = "projects/{project}/subscriptions/{subscription}"
SNAPSHOT = "projects/{project}/snapshots/{snapshot}"
SCHEMA = "projects/{project}/schemas/{schema}"
PROJECT = "projects/{project}"

MakeCall = Callable[[Target, Values], Call]
MakeReceipt = Callable[[Target, Values, Json], Receipt]
MakeCommand = Callable[[Target, Values], str]

REASON = Field(name="reason", label="Reason", help="Shown to everybody who meets it.", placeholder="incident 4711")
RATE = Field(
    name="maxMessagesPerSecond",
    label="Messages a second, at most",
    read=reading.number,
    help="Empty: as fast as it can.",
)
FILTER = Field(
    name="filter", label="Filter", placeholder='attributes.env = "test"', help="Only messages that it matches."
)
LABELS = Field(name="labels", label="Labels", kind="area", read=reading.pairs, placeholder="team=billing")


def full_name(target: Target, collection: str, name: str) -> str:
    """Return the full name of a resource of the project that is given by its id; a full name stays as it is."""
    return name if name.startswith("projects/") or not name else f"{target.project}/{collection}/{name}"


def posting(verb: str, *names: str) -> MakeCall:
    """Make a POST of the verb with those fields of the form that are filled in."""
    return lambda target, values: Call("POST", f"{target.name}:{verb}", chosen(values, *names))


def deleting(target: Target, _: Values) -> Call:
    """Make a DELETE of the resource."""
    return Call("DELETE", target.name)


def chosen(values: Values, *names: str) -> Json:
    return {name: values[name] for name in names if name in values}


def patching(field_of: Mapping[str, Callable[[Values], Any]], of: str) -> MakeCall:
    """Make a PATCH of all fields of the form; those that are empty are cleared.  `of`: "topic", for the body."""

    def call(target: Target, values: Values) -> Call:
        body = {name: made for name, make in field_of.items() if (made := make(values)) is not None}
        return Call("PATCH", target.name, {of: {"name": target.name, **body}, "updateMask": ",".join(field_of)})

    return call


def done(text: str, *, path: Callable[[Target], str] | None = None, undo: str = "") -> MakeReceipt:
    """Make a receipt with `{target}` replaced by the id.  `path`: of the page to go to; the resource's, if absent.

    `undo`: the verb of the action that takes it back.
    """

    def receipt(target: Target, _values: Values, _answer: Json) -> Receipt:
        back = f"{target.name}:{undo}" if undo else ""
        return Receipt(text.format(target=target.id), path(target) if path is not None else target.name, undo=back)

    return receipt


def created(kind: str, collection: str) -> MakeReceipt:
    """Make the receipt of a new resource, whose id was typed."""

    def receipt(target: Target, values: Values, _: Json) -> Receipt:
        return Receipt(f"Created {kind} {values['id']}.", f"{target.project}/{collection}/{values['id']}")

    return receipt


def operation(text: str) -> MakeReceipt:
    """Make the receipt of an operation, whose page is the receipt that stays."""

    def receipt(target: Target, _: Values, answer: Json) -> Receipt:
        return Receipt(text.format(target=target.id), answer.get("name", target.name))

    return receipt


def asking_itself(target: Target, _: Values) -> Mapping[str, Call]:
    """Ask for the resource, for the notes of an action."""
    return {"own": Call("GET", target.name)}


def since(what: str, found: Json, *, time: str, by: str, reason: str = "") -> Sequence[Note]:
    """Say since when something is so, by whom and why, by the names of these fields; nothing if it is not."""
    if time not in found and reason not in found:
        return ()
    at = f" since {found[time]}" if time in found else ""
    who = f" by {found[by]}" if found.get(by) else ""
    why = f": {found[reason]}" if found.get(reason) else "."
    return [Note(f"{what}{at}{who}{why}")]


def in_project(collection: str) -> Callable[[Target], str]:
    return lambda target: f"{target.project}/{collection}"


def command(line: str, **options: str) -> MakeCommand:
    """Make a `broker` command: `line`, and an option for each field that is filled in.

    In `line`, `{target}` is the id of the resource, and the name of a field its value: in capitals, if it is empty.
    `options`: the name of the option by that of the field.
    """

    def make(target: Target, values: Values) -> str:
        typed = {name: " ".join(quote(each) for each in _texts(value)) for name, value in values.items()}
        parts = [line.format_map(_Typed(typed, target=quote(target.id)))]
        for name, option in options.items():
            value = values.get(name)
            parts += [f"--{option}"] if value is True else [f"--{option} {quote(each)}" for each in _texts(value)]
        return " ".join(["broker", *parts, f"--project {quote(leaf(target.project))}"])

    return make


class _Typed(dict[str, str]):
    """Values for a command; a field without one is shown by its name."""

    def __missing__(self, name: str) -> str:
        return snake(name).upper()


def _texts(value: object) -> list[str]:
    if value is None or value is False:
        return []
    if isinstance(value, Mapping):
        return [f"{key}={each}" for key, each in value.items()]
    return [str(each) for each in value] if isinstance(value, list) else [str(value)]


def encoded(text: str) -> str:
    """Return the body of a message as the API takes it."""
    return base64.b64encode(text.encode()).decode()


def outcomes(text: str, answer: Json, **words: str) -> str:
    """Return `text` with how many messages have each outcome, such as "Messages of billing: 3 discarded.".

    `words`: what outcomes mean for this action, where that is another than usual.
    """
    counts = ", ".join(
        f"{int(number):,} {words.get(outcome) or _words(outcome)}"
        for outcome, number in answer.get("counts", {}).items()
    )
    return f"{text}: {counts or 'no message'}."


# What an outcome means for somebody who reads it alone, where its name does not say it.
_OUTCOMES = {
    "filtered": "left out, because the filter does not match",
    "outstanding": "left alone, because a consumer holds the message until its ack deadline",
}


def _words(outcome: str) -> str:
    """Return "already settled" for "alreadySettled"."""
    return _OUTCOMES.get(outcome) or in_words(outcome)
