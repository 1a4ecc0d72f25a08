"""The commands of `broker op` that broker/cli/resources.py does not generate."""

import click

from broker.client.api import Json
from broker.client.calling import Session, calling
from broker.client.operations import finished, in_words, wait_for, wait_once
from broker.client.output import Shown
from broker.client.words import leaf

_operation = click.argument("operation")


def fields(operation: Json) -> Json:
    """An operation for people: its metadata, and why it failed."""
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
