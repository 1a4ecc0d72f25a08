"""Reads the fields of a resource from options, and the field mask of those that were given."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import click

from broker.client.api import Json
from broker.client.json_text import NotJson, parse_json
from broker.client.stop import Misuse

SET = click.option(
    "--set",
    "assigned",
    metavar="FIELD=VALUE",
    multiple=True,
    help="Any field, as the API calls it; the value is JSON, or a text. Repeatable.",
)
CLEAR = click.option("--clear", "cleared", metavar="FIELD", multiple=True, help="Back to its default. Repeatable.")
LABEL = click.option("--label", "labels", metavar="KEY=VALUE", multiple=True, help="Repeatable.")


def assign(body: Json, assigned: Sequence[str]) -> Json:
    """`body` with what --set says.  Raises Misuse."""
    for one in assigned:
        path, sign, text = one.partition("=")
        if not sign or not path:
            raise Misuse(f"--set must be FIELD=VALUE, such as ackDeadlineSeconds=30, not {one!r}")
        put(body, path, _value(text))
    return body


def put(body: Json, path: str, value: Any) -> None:
    """Raises Misuse where the path leads through what has no fields."""
    *parents, last = path.split(".")
    holder: Any = body
    for name in parents:
        holder = holder.setdefault(name, {})
        if not isinstance(holder, dict):
            raise Misuse(f"--set {path}: {name} has no fields of its own")
    holder[last] = value


def given(fields: Mapping[str, Any]) -> Json:
    """Returns the fields that were given, by their paths ("retryPolicy.minimumBackoff")."""
    body: Json = {}
    for path, value in fields.items():
        if value is not None and value != {}:
            put(body, path, value)
    return body


def mask(body: Json, cleared: Sequence[str] = ()) -> str:
    """Returns the update mask for these fields.  A field with subfields is named as a whole."""
    return ",".join(snake(name) for name in [*body, *(one for one in cleared if one not in body)])


def snake(name: str) -> str:
    """`ack_deadline_seconds` for `ackDeadlineSeconds`: what a mask has, here and with Google."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _value(text: str) -> Any:
    try:
        return parse_json(text, sendable=True)
    except NotJson:
        return text
