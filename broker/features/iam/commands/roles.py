"""`broker auth roles`: the predefined roles, and those of a project's own."""

from collections.abc import Sequence

import click

from broker.client.api import Json
from broker.client.calling import Session, calling
from broker.client.output import Shown
from broker.client.stop import Misuse
from broker.client.words import leaf
from broker.features.iam.commands.names import project_role

LIST_OPTIONS = (
    click.option("--custom", is_flag=True, help="Only those of the project's own."),
    click.option("--deleted", is_flag=True, help="Also deleted ones of the project."),
)
_role = click.argument("role")
_title = click.option("--title", metavar="TEXT", help="What people call it.")
_description = click.option("--description", metavar="TEXT", help="What it is for.")


def find(session: Session, *, custom: bool, deleted: bool) -> list[Json]:
    """Returns the roles that a policy can give."""
    found = [] if custom else session.api.all_of("roles", "roles")
    return found + session.api.all_of(
        f"{session.project}/roles", "roles", {"showDeleted": "true" if deleted else None}
    )


def fields(role: Json) -> Json:
    """Returns the fields of a role to show; its permissions come last."""
    rest = {name: value for name, value in role.items() if name not in ("includedPermissions", "etag")}
    return rest | {"permissions": role.get("includedPermissions", [])}


@calling(
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


@calling("permissions", "broker auth roles permissions --contains snapshots")
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
    """Returns the permissions of a role after a change.

    Raises Misuse for a permission to remove that the role does not have.
    """
    held = list(role.get("includedPermissions", []))
    if missing := [permission for permission in removed if permission not in held]:
        raise Misuse(f"--remove-permission: {leaf(role['name'])} does not have {missing[0]}")
    kept = [permission for permission in held if permission not in removed]
    return kept + [permission for permission in added if permission not in kept]
