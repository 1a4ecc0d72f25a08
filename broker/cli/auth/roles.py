"""`broker auth roles`: the predefined roles, and those of a project's own."""

from collections.abc import Sequence

import click

from broker.cli.auth.calling import calling
from broker.cli.auth.names import project_role
from broker.cli.client.api import Json
from broker.cli.client.calling import Session
from broker.cli.client.confirming import YES, confirm
from broker.cli.client.output import Shown
from broker.cli.client.words import leaf
from broker.cli.command_line import Group
from broker.cli.stop import Misuse

COMMANDS = Group("roles", help="Roles: lists of permissions, predefined or of a project's own.")
_role = click.argument("role")
_title = click.option("--title", metavar="TEXT", help="What people call it.")
_description = click.option("--description", metavar="TEXT", help="What it is for.")


@calling(COMMANDS, "list", "broker auth roles list", "broker auth roles list --custom")
@click.option("--custom", is_flag=True, help="Only those of the project's own.")
@click.option("--deleted", is_flag=True, help="Also deleted ones of the project.")
def list_(session: Session, *, custom: bool, deleted: bool) -> Shown:
    """List the roles that a policy can give: the predefined ones and those of the project."""
    found = [] if custom else session.api.all_of("roles", "roles")
    found += session.api.all_of(f"{session.project}/roles", "roles", {"showDeleted": "true" if deleted else None})
    rows = [[one["name"], "deleted" if one.get("deleted") else "", one.get("title", "")] for one in found]
    nothing = "The project has no role of its own; `broker auth roles create` makes one."
    return Shown(
        data=found, columns=("role", "state", "title"), rows=rows, whole=("role",), cut=("title",), nothing=nothing
    )


@calling(COMMANDS, "show", "broker auth roles show roles/pubsub.publisher", "broker auth roles show auditor")
@_role
def show(session: Session, *, role: str) -> Shown:
    """Show a role with its permissions; a name without roles/ is one of the project's own."""
    return _shown(session.api.call("GET", project_role(session, role)))


@calling(
    COMMANDS,
    "create",
    "broker auth roles create auditor --permission pubsub.topics.get",
)
@_role
@_title
@_description
@click.option("--permission", "permissions", metavar="PERMISSION", multiple=True, required=True, help="Repeatable.")
def create(
    session: Session, *, role: str, title: str | None, description: str | None, permissions: tuple[str, ...]
) -> Shown:
    """Make a role of the project's own; `broker auth roles permissions` lists the permissions."""
    body = {"roleId": role, "role": _fields(title, description) | {"includedPermissions": list(permissions)}}
    made = session.api.call("POST", f"{session.project}/roles", body)
    return Shown(data=made, line=f"Created the role {made['name']}.")


@calling(
    COMMANDS,
    "update",
    "broker auth roles update auditor --add-permission pubsub.subscriptions.get",
    "broker auth roles update auditor --remove-permission pubsub.topics.get",
)
@_role
@_title
@_description
@click.option("--add-permission", "added", metavar="PERMISSION", multiple=True, help="Repeatable.")
@click.option("--remove-permission", "removed", metavar="PERMISSION", multiple=True, help="Repeatable.")
def update(
    session: Session,
    *,
    role: str,
    title: str | None,
    description: str | None,
    added: tuple[str, ...],
    removed: tuple[str, ...],
) -> Shown:
    """Change what is named of a role; it holds within a second."""
    name = project_role(session, role)
    body = _fields(title, description)
    if added or removed:
        there = session.api.call("GET", name)
        body |= {"includedPermissions": _changed(there, added, removed), "etag": there.get("etag", "")}
    if not body:
        raise Misuse("nothing to change: give --title, --description, --add-permission or --remove-permission")
    mask = ",".join(field for field in body if field != "etag")
    changed = session.api.call("PATCH", name, body, params={"updateMask": mask})
    return Shown(data=changed, line=f"Changed the role {name}.")


@calling(COMMANDS, "delete", "broker auth roles delete auditor")
@_role
@YES
def delete(session: Session, *, role: str, yes: bool) -> Shown:
    """Delete a role of the project's own; it gives nothing until it is undeleted."""
    name = project_role(session, role)
    confirm(f"Delete the role {name}? Members lose what it gives.", yes=yes)
    return Shown(data=session.api.call("DELETE", name), line=f"Deleted the role {leaf(name)}.")


@calling(COMMANDS, "undelete", "broker auth roles undelete auditor")
@_role
def undelete(session: Session, *, role: str) -> Shown:
    """Restore a deleted role, with what it gave."""
    name = project_role(session, role)
    restored = session.api.call("POST", f"{name}:undelete", {})
    return Shown(data=restored, line=f"Restored the role {leaf(name)}.")


@calling(COMMANDS, "permissions", "broker auth roles permissions --contains snapshots")
@click.option("--contains", metavar="TEXT", default="", help="Only those whose name contains it.")
def permissions_(session: Session, *, contains: str) -> Shown:
    """List the permissions that this broker checks."""
    found: list[Json] = []
    token = ""
    while True:
        body: Json = {"pageToken": token} if token else {}
        answer = session.api.call("POST", "permissions:queryTestablePermissions", body)
        found += [one for one in answer.get("permissions", []) if contains in one["name"]]
        token = answer.get("nextPageToken", "")
        if not token:
            break
    rows = [[one["name"]] for one in found]
    return Shown(data=found, columns=("permission",), rows=rows, nothing="There is no such permission.")


def _fields(title: str | None, description: str | None) -> Json:
    given = {"title": title, "description": description}
    return {name: text for name, text in given.items() if text is not None}


def _changed(role: Json, added: Sequence[str], removed: Sequence[str]) -> list[str]:
    """Raises Misuse for a permission to remove that the role does not have."""
    held = list(role.get("includedPermissions", []))
    if missing := [permission for permission in removed if permission not in held]:
        raise Misuse(f"--remove-permission: {leaf(role['name'])} does not have {missing[0]}")
    kept = [permission for permission in held if permission not in removed]
    return kept + [permission for permission in added if permission not in kept]


def _shown(role: Json) -> Shown:
    rest = {name: value for name, value in role.items() if name not in ("includedPermissions", "etag")}
    return Shown(data=role, fields=rest | {"permissions": role.get("includedPermissions", [])})
