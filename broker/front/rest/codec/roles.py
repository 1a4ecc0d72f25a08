"""Roles, as Google's IAM reads and prints them."""

from base64 import b64encode, urlsafe_b64decode
from binascii import Error as NotBase64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from broker.domain.errors import InvalidArgument
from broker.domain.field_mask import check_field_mask
from broker.domain.permissions import PERMISSIONS
from broker.domain.role import Role
from broker.front.rest.codec.requests import decode_request

_MUTABLE = ("title", "description", "included_permissions", "stage")
_IMMUTABLE = ("name", "etag", "deleted")
_UNSPECIFIED = "ALPHA"  # the stage that Google takes a role without one for


class RoleBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """`name`, `etag` and `deleted` may be there, as they were read."""

    name: str = ""
    title: str | None = None
    description: str | None = None
    included_permissions: list[str] | None = None
    stage: str | None = None
    etag: str = ""
    deleted: bool = False


class CreateRoleRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    role_id: str = ""
    role: RoleBody = msgspec.field(default_factory=RoleBody)


class UndeleteRoleRequest(msgspec.Struct, forbid_unknown_fields=True):
    etag: str = ""


class QueryTestablePermissionsRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """All of them are told at once, of whichever resource."""

    full_resource_name: str = ""
    page_size: int = 0
    page_token: str = ""


_create = msgspec.json.Decoder(CreateRoleRequest)
_role = msgspec.json.Decoder(RoleBody)
_undelete = msgspec.json.Decoder(UndeleteRoleRequest)
_query = msgspec.json.Decoder(QueryTestablePermissionsRequest)


def decode_create_role(body: bytes) -> tuple[str, Role]:
    """The id of a new role, and the role without a name.  Raises InvalidArgument."""
    request = decode_request(_create, body)
    return request.role_id, _changed(Role(""), request.role, _MUTABLE)


def decode_update_role(body: bytes, paths: Sequence[str]) -> tuple[RoleBody, Sequence[str]]:
    """What is wanted, and the fields that change: without a mask, those that are given.  Raises InvalidArgument."""
    wanted = decode_request(_role, body)
    if paths:
        check_field_mask(paths, resource="role", mutable=_MUTABLE, immutable=_IMMUTABLE)
    return wanted, paths or [field for field in _MUTABLE if getattr(wanted, field) is not None]


def updated(role: Role, wanted: RoleBody, paths: Sequence[str]) -> Role:
    """The role with those fields as they are wanted."""
    return _changed(role, wanted, paths)


def decode_undelete_role(body: bytes) -> bytes:
    """The etag.  Raises InvalidArgument."""
    return etag_from(decode_request(_undelete, body).etag)


def check_query_testable_permissions(body: bytes) -> None:
    """Raises InvalidArgument."""
    decode_request(_query, body)


def testable_permissions_json() -> dict[str, Any]:
    return {"permissions": [{"name": name, "stage": "GA"} for name in sorted(PERMISSIONS)]}


def etag_from(text: str) -> bytes:
    """Bytes in base64 of either alphabet.  Raises InvalidArgument."""
    try:
        return urlsafe_b64decode(text.replace("+", "-").replace("/", "_") + "=" * (-len(text) % 4))
    except (NotBase64, ValueError):
        raise InvalidArgument("etag must be base64, as it was read.") from None


def role_json(role: Role, *, full: bool = True) -> dict[str, Any]:
    """`full`: with its permissions."""
    body: Mapping[str, Any] = {
        "name": role.name,
        "title": role.title,
        "description": role.description,
        "includedPermissions": sorted(role.permissions) if full else [],
        "stage": "" if role.stage == _UNSPECIFIED else role.stage,
        "etag": b64encode(role.etag).decode("ascii"),
        "deleted": role.deleted,
    }
    return {name: value for name, value in body.items() if value}


def _changed(role: Role, wanted: RoleBody, paths: Sequence[str]) -> Role:
    values: dict[str, Any] = {
        "title": wanted.title or "",
        "description": wanted.description or "",
        "included_permissions": frozenset(wanted.included_permissions or ()),
        "stage": wanted.stage or _UNSPECIFIED,
    }
    fields = {path: values[path] for path in paths}
    if "included_permissions" in fields:
        fields["permissions"] = fields.pop("included_permissions")
    return replace(role, **fields)
