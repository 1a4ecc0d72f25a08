"""The options of destructive commands: a dry run, and the count that the caller expects."""

from collections.abc import Callable
from typing import Any

import click

from broker.client.api import Api, Json
from broker.client.output import Shown
from broker.client.words import counted, leaf, loss_text

DRY_RUN = click.option("--dry-run", is_flag=True, help="Say what it would do; needs this broker.")
EXPECTED = click.option(
    "--expected-count",
    metavar="N",
    type=click.IntRange(0),
    help="Do nothing if the count of the dry run is another one.",
)
TOLERANCE = click.option(
    "--tolerance-percent",
    metavar="P",
    type=click.FloatRange(0, 100),
    help="By how much the count may differ from the expected one.",
)
SAFEGUARDS = (DRY_RUN, EXPECTED, TOLERANCE)

_FIELDS = {"expected_count": "expectedCount", "tolerance_percent": "tolerancePercent"}
_MOST_NAMES = 5


def safeguarded(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options to a command, which passes them to `taken`."""
    for option in reversed(SAFEGUARDS):
        command = option(command)
    return command


def taken(api: Api, options: dict[str, Any]) -> Json:
    """Removes the options from those of a command.  Returns the fields of the request.

    A server of the API that does not know the fields may ignore them and act.  So if there are any, the command
    first makes a call that only this broker has.  Raises NotKnown.
    """
    fields: Json = {"validateOnly": True} if options.pop("dry_run", False) else {}
    given = {name: options.pop(option, None) for option, name in _FIELDS.items()}
    fields |= {name: value for name, value in given.items() if value is not None}
    if fields:
        api.call("GET", "roles", params={"pageSize": 1})
    return fields


def as_parameters(fields: Json) -> dict[str, Any]:
    """Returns the same fields as query parameters of a DELETE."""
    return {name: "true" if value is True else value for name, value in fields.items()}


def shown_preview(name: str, preview: Json) -> Shown:
    """Shows a preview: what the call would affect, what would be lost, and what refers to the resource."""
    about = "about " if preview.get("estimated") else ""
    fields: Json = {"would affect": f"{about}{counted(preview['count'], preview['unit'])} of {leaf(name)}"}
    if preview["unit"] == "reference":
        fields = {"would delete": leaf(name)}
    lost = [loss_text(what, count) for what, count in preview.get("losses", {}).items() if count]
    if lost and lost != [counted(preview["count"], preview["unit"])]:
        fields["in all"] = ", ".join(lost)
    if total := preview.get("referenceCount", 0):
        seen = [f"{leaf(each['name'])} ({_kind(each['kind'])})" for each in preview["referredToBy"][:_MOST_NAMES]]
        fields["refers to it"] = ", ".join([*seen, *([f"{total - len(seen):,} more"] if total > len(seen) else [])])
    return Shown(data=preview, fields=fields)


def _kind(kind: str) -> str:
    return kind.lower().replace("_", " ")
