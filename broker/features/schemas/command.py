"""The commands of `broker schema` that broker/cli/resources.py does not generate."""

import base64
from pathlib import Path
from typing import Any

import click

from broker.client.api import Json
from broker.client.calling import Session, calling
from broker.client.confirming import YES, confirm
from broker.client.files import read_bytes
from broker.client.output import Shown
from broker.client.resource import Table
from broker.client.safeguards import as_parameters, safeguarded, shown_preview, taken
from broker.client.stop import Misuse
from broker.client.words import as_typed, leaf, short_time

_schema = click.argument("schema")
_revision = click.argument("revision")
_type = click.option(
    "--type",
    "kind",
    type=click.Choice(["avro", "proto"]),
    help="The language of the definition; default: by the file's ending, .avsc or .proto.",
)
_file = click.option("--file", "file", metavar="FILE", required=True, help="The definition; - is standard input.")
_compatibility = click.option(
    "--compatibility", metavar="MODE", help="Of later revisions, such as BACKWARD or NONE; needs this broker."
)
_TYPES = {"avro": "AVRO", "proto": "PROTOCOL_BUFFER", ".avsc": "AVRO", ".avro": "AVRO", ".json": "AVRO"} | {
    ".proto": "PROTOCOL_BUFFER"
}
REVISIONS = Table(
    columns={
        "revision": lambda s: s.get("revisionId", ""),
        "type": lambda s: "AVRO" if s.get("type") == "AVRO" else "PROTO",
        "created": lambda s: short_time(s.get("revisionCreateTime")),
        "definition": lambda s: " ".join(s.get("definition", "").split()),
    },
    whole=("revision", "type", "created"),
    cut=("definition",),
)


@calling("create", "broker schema create order --file order.avsc")
@_schema
@_file
@_type
@_compatibility
def create(session: Session, *, schema: str, file: str, kind: str | None, compatibility: str | None) -> Shown:
    """Make a schema; `broker topic create --set schemaSettings.schema=…` has a topic check messages by it."""
    name = session.schema(schema)
    body = _definition(file, kind) | ({"compatibility": compatibility.upper()} if compatibility else {})
    made = session.api.call("POST", f"{session.project}/schemas", body, params={"schemaId": leaf(name)})
    return Shown(data=made, line=f"Created the schema {name} (revision {made['revisionId']}).")


@calling("revisions", "broker schema revisions order")
@_schema
def revisions(session: Session, *, schema: str) -> Shown:
    """List the revisions of a schema, the newest first."""
    found = session.api.all_of(f"{session.schema(schema)}:listRevisions", "schemas", {"view": "FULL"})
    return REVISIONS.shown(found)


@calling("validate", "broker schema validate --file order.avsc")
@_file
@_type
def validate(session: Session, *, file: str, kind: str | None) -> Shown:
    """Check a definition without making a schema; exit code 1 if it is not valid."""
    answer = session.api.call("POST", f"{session.project}/schemas:validate", {"schema": _definition(file, kind)})
    return Shown(data=answer, line="The definition is valid.")


@calling(
    "check",
    'broker schema check order \'{"id": "1"}\'',
    'broker schema check --file order.avsc \'{"id": "1"}\'',
)
@click.argument("schema_and_message", metavar="[SCHEMA] MESSAGE", nargs=-1, required=True)
@click.option("--file", "file", metavar="FILE", help="A definition in place of SCHEMA.")
@_type
@click.option("--encoding", type=click.Choice(["json", "binary"]), default="json", show_default=True)
@click.option("--message-file", metavar="FILE", help="The message's body in place of MESSAGE.")
def check(
    session: Session,
    *,
    schema_and_message: tuple[str, ...],
    file: str | None,
    kind: str | None,
    encoding: str,
    message_file: str | None,
) -> Shown:
    """Check a message against a schema (SCHEMA@REVISION: a revision of it); exit code 1 if it does not match."""
    wanted = (file is None) + (message_file is None)
    if len(schema_and_message) != wanted:
        raise Misuse("give SCHEMA, or --file with a definition; and MESSAGE, or --message-file")
    given = list(schema_and_message)
    body: Json = {"encoding": encoding.upper()}
    body |= {"schema": _definition(file, kind)} if file else {"name": session.schema(given.pop(0))}
    data = read_bytes(message_file, "--message-file") if message_file else as_typed(given.pop(0))
    body["message"] = base64.b64encode(data).decode()
    answer = session.api.call("POST", f"{session.project}/schemas:validateMessage", body)
    return Shown(data=answer, line="The message is valid.")


@calling("commit", "broker schema commit order --file next.avsc")
@_schema
@_file
@_type
@_compatibility
def commit(session: Session, *, schema: str, file: str, kind: str | None, compatibility: str | None) -> Shown:
    """Add a revision to a schema; it must be compatible with those before."""
    name = session.schema(schema)
    body = _definition(file, kind) | {"name": name}
    body |= {"compatibility": compatibility.upper()} if compatibility else {}
    made = session.api.call("POST", f"{name}:commit", {"name": name, "schema": body})
    return Shown(data=made, line=f"Committed revision {made['revisionId']} of {leaf(name)}.")


@calling("rollback", "broker schema rollback order $REVISION")
@_schema
@_revision
def rollback(session: Session, *, schema: str, revision: str) -> Shown:
    """Add a revision with the definition of an earlier one."""
    name = session.schema(schema)
    made = session.api.call("POST", f"{name}:rollback", {"name": name, "revisionId": revision})
    return Shown(data=made, line=f"Revision {made['revisionId']} of {leaf(name)} is a copy of {revision}.")


@calling("delete-revision", "broker schema delete-revision order $REVISION")
@_schema
@_revision
@safeguarded
@YES
def delete_revision(session: Session, *, schema: str, revision: str, yes: bool, **safeguards: Any) -> Shown:
    """Delete a revision of a schema; a schema keeps at least one."""
    name = session.schema(schema)
    asked = as_parameters(taken(session.api, safeguards))
    path = f"{name}@{revision}:deleteRevision"
    if "validateOnly" in asked:
        return shown_preview(f"{name}@{revision}", session.api.call("DELETE", path, params=asked))
    confirm(f"Delete revision {revision} of the schema {name}, for good?", yes=yes)
    left = session.api.call("DELETE", path, params=asked)
    return Shown(data=left, line=f"Deleted revision {revision} of {leaf(name)}.")


def _definition(file: str, kind: str | None) -> Json:
    """Raises Misuse."""
    type_ = _TYPES.get(kind or Path(file).suffix)
    if type_ is None:
        raise Misuse(f"--file {file}: give --type avro or --type proto, as its name does not say which it is")
    try:
        return {"type": type_, "definition": read_bytes(file, "--file").decode()}
    except UnicodeDecodeError:
        raise Misuse(f"--file {file} must be text in UTF-8") from None
