"""The commands of `broker op` that broker/cli/resources.py does not generate."""

import json

import click

from broker.client.api import Json
from broker.client.calling import Session, calling
from broker.client.operations import finished, in_words, wait_for, wait_once
from broker.client.output import Shown
from broker.client.words import leaf
from broker.features.operations.operation import OperationState

_operation = click.argument("operation")
_TERMS = {"state": "state", "verb": "verb", "target": "target", "started_by": "startedBy"}  # options and fields
LIST_OPTIONS = (
    click.option("--newest", is_flag=True, help="The newest first."),
    click.option("--state", type=click.Choice(list(OperationState)), help="Only those in this state."),
    click.option("--verb", metavar="VERB", help="Such as redrive, copy or purge."),
    click.option("--target", metavar="NAME", help="A full name; one that ends in * means all that begin so."),
    click.option("--started-by", metavar="MEMBER", help="Such as serviceAccount:EMAIL or user:EMAIL."),
    click.option("--max", "most", metavar="N", type=click.IntRange(1), help="At most so many."),
)


def find(session: Session, *, newest: bool, most: int | None, **terms: str | None) -> list[Json]:
    """Returns the operations that match the options."""
    comparisons = [f"{_TERMS[name]}={json.dumps(text)}" for name, text in terms.items() if text]
    params = {"orderBy": "createTime desc" if newest else None, "filter": " AND ".join(comparisons) or None}
    return session.api.all_of(f"{session.project}/operations", "operations", params, most)


def fields(operation: Json) -> Json:
    """Returns the fields of an operation to show: its metadata, and why it failed."""
    metadata = {name: part for name, part in operation["metadata"].items() if name != "@type"}
    error = {"error": operation["error"]} if "error" in operation else {}
    return {"operation": leaf(operation["name"]), **metadata, **error}


def progress(operation: Json) -> str:
    metadata = operation["metadata"]
    return f"{metadata.get('done', 0)} of {metadata.get('total', 0)}"


@calling("wait", "broker op wait $OP")
@_operation
def wait(session: Session, *, operation: str) -> int:
    """Wait until it has ended; exit code 1 if it failed."""
    found = wait_once(session.api, session.operation(operation))
    return finished(session.out, wait_for(session.api, session.out, found))


@calling("cancel", "broker op cancel $OP")
@_operation
def cancel(session: Session, *, operation: str) -> Shown:
    """Begin no further step; what was done stays done."""
    name = session.operation(operation)
    session.api.call("POST", f"{name}:cancel", {})
    found = session.api.call("GET", name)
    return Shown(data=found, line=in_words(found))
