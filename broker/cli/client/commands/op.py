"""`broker op`."""

import click

from broker.cli.client.api import Json
from broker.cli.client.calling import Session, calling
from broker.cli.client.operations import finished, in_words, wait_for, wait_once
from broker.cli.client.output import Shown
from broker.cli.client.words import leaf, short_time
from broker.cli.command_line import Group

COMMANDS = Group("op", help="Operations: long work that goes on by itself; these need this broker.")
_operation = click.argument("operation")


@calling(COMMANDS, "list", "broker op list")
def list_(session: Session) -> Shown:
    """List the operations of a project, the oldest first."""
    found = session.api.all_of(f"{session.project}/operations", "operations")
    rows = [_row(one, one["metadata"]) for one in found]
    columns = ("operation", "what", "of", "state", "done", "began")
    return Shown(
        data=found,
        columns=columns,
        rows=rows,
        whole=columns,
        minor=("began", "done", "what"),
        nothing="The project has no operation.",
    )


@calling(COMMANDS, "show", "broker op show $OP")
@_operation
def show(session: Session, *, operation: str) -> Shown:
    """Show an operation, and how far it is."""
    found = session.api.call("GET", session.operation(operation))
    told = {name: part for name, part in found["metadata"].items() if name != "@type"}
    error = {"error": found["error"]} if "error" in found else {}
    return Shown(data=found, fields={"operation": leaf(found["name"]), **told, **error})


@calling(COMMANDS, "wait", "broker op wait $OP")
@_operation
def wait(session: Session, *, operation: str) -> int:
    """Wait until it has ended; exit code 1 if it failed."""
    found = wait_once(session.api, session.operation(operation))
    return finished(session.out, wait_for(session.api, session.out, found))


@calling(COMMANDS, "cancel", "broker op cancel $OP")
@_operation
def cancel(session: Session, *, operation: str) -> Shown:
    """Begin no further step; what was done stays done."""
    name = session.operation(operation)
    session.api.call("POST", f"{name}:cancel", {})
    found = session.api.call("GET", name)
    return Shown(data=found, line=in_words(found))


@calling(COMMANDS, "delete", "broker op delete $OP")
@_operation
def delete(session: Session, *, operation: str) -> Shown:
    """Forget one that has ended."""
    name = session.operation(operation)
    return Shown(data=session.api.call("DELETE", name), line=f"Forgot {name}.")


def _row(operation: Json, metadata: Json) -> list[str]:
    done = f"{metadata.get('done', 0)} of {metadata.get('total', 0)}"
    return [
        leaf(operation["name"]),
        metadata["verb"],
        leaf(metadata["target"]),
        metadata.get("state", ""),
        done,
        short_time(metadata.get("createTime")),
    ]
