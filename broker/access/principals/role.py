"""Custom roles: named sets of permissions that a project defines.

They have the shape of google.iam.admin.v1.Role
(https://cloud.google.com/iam/docs/reference/rest/v1/projects.roles), and the limits of
https://cloud.google.com/iam/quotas.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

from broker.access.principals.permissions import PERMISSIONS
from broker.model.errors import InvalidArgument

MAX_ROLES = 300  # of a project
MAX_TITLE, MAX_DESCRIPTION = 100, 300  # characters
STAGES = ("ALPHA", "BETA", "GA", "DEPRECATED", "DISABLED", "EAP")
DISABLED = "DISABLED"  # a role in this stage gives nothing

_ID = re.compile(r"[A-Za-z0-9_.]{3,64}")


@dataclass(frozen=True, slots=True)
class Role:
    """`name` is "projects/{project}/roles/{id}".  A deleted one gives nothing, and may be had back."""

    name: str
    title: str = ""
    description: str = ""
    stage: str = "ALPHA"
    permissions: frozenset[str] = frozenset()
    deleted: bool = False
    etag: bytes = b""


def role_name(project: str, role_id: str) -> str:
    """The name of a new role.  Raises InvalidArgument."""
    if not _ID.fullmatch(role_id):
        raise InvalidArgument(
            f"The role id must have 3 to 64 letters, digits, '_' and '.' (roleId={role_id[:100]})."
        )
    return f"{project}/roles/{role_id}"


def check_role(role: Role) -> None:
    """Raises InvalidArgument for what a role cannot have."""
    for field, value, most in (
        ("title", role.title, MAX_TITLE),
        ("description", role.description, MAX_DESCRIPTION),
    ):
        if len(value) > most or "\0" in value:
            raise InvalidArgument(f"{field} must have at most {most} characters, none of them U+0000.")
    if role.stage not in STAGES:
        raise InvalidArgument(f"stage must be one of {', '.join(STAGES)} (stage={role.stage[:100]}).")
    check_permissions(role.permissions)


def check_permissions(permissions: Collection[str]) -> None:
    """Raises InvalidArgument for a permission that this broker does not check."""
    for permission in sorted(permissions):
        if permission not in PERMISSIONS:
            raise InvalidArgument(
                f"Permission {permission[:100]} is not valid: this broker has no such permission "
                "(includedPermissions)."
            )
