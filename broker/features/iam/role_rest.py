"""The calls about the custom roles of a project and the predefined roles."""

from base64 import b64encode, urlsafe_b64decode
from binascii import Error as NotBase64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from broker.access.principals.permissions import PERMISSIONS
from broker.access.principals.role import Role
from broker.api.rest.call import Call
from broker.api.rest.codec.lists import decode_page_parameters, encode_list
from broker.api.rest.codec.requests import decode_request
from broker.api.rest.codec.resources import encode_resource
from broker.api.rest.previews import preview_answer, safeguards_of_query
from broker.features.iam.role_service import RoleService
from broker.model.errors import InvalidArgument
from broker.model.field_mask import check_field_mask, parse_field_mask
from broker.model.page import parse_page
from broker.model.preview import Undone

_VIEWS = ("", "BASIC", "FULL")  # of a list: without the permissions, or with them


async def create_role(service: RoleService, call: Call) -> bytes:
    role_id, role = decode_create_role(call.body)
    return encode_resource(role_json(await service.create_role(call.name, role_id, role)))


async def get_role(service: RoleService, call: Call) -> bytes:
    return encode_resource(role_json(await service.get_role(call.name)))


async def list_roles(service: RoleService, call: Call) -> bytes:
    page = parse_page(*decode_page_parameters(call.query))
    full, deleted = _list_options(call)
    roles, token = await service.list_roles(call.name, page, deleted=deleted)
    return encode_list("roles", [role_json(role, full=full) for role in roles], token)


async def get_predefined_role(service: RoleService, call: Call) -> bytes:
    return encode_resource(role_json(service.get_predefined_role(call.name)))


async def list_predefined_roles(service: RoleService, call: Call) -> bytes:
    page = parse_page(*decode_page_parameters(call.query), prefix="roles/")
    full, _ = _list_options(call)  # none of them is ever deleted
    if parent := call.query.get("parent", ""):
        raise InvalidArgument(
            "parent must be empty: the roles of a project are at /v1/projects/{project}/roles "
            f"(parent={parent[:100]})."
        )
    roles, token = service.list_predefined_roles(page)
    return encode_list("roles", [role_json(role, full=full) for role in roles], token)


async def update_role(service: RoleService, call: Call) -> bytes:
    wanted, paths = decode_update_role(call.body, parse_field_mask(call.update_mask or ""))
    role = await service.update_role(
        call.name, lambda role: updated(role, wanted, paths), etag=etag_from(wanted.etag)
    )
    return encode_resource(role_json(role))


async def delete_role(service: RoleService, call: Call) -> bytes:
    etag = etag_from(call.query.get("etag", ""))
    safeguards = safeguards_of_query(call)
    try:
        return encode_resource(role_json(await service.delete_role(call.name, etag=etag, safeguards=safeguards)))
    except Undone as undone:
        return await preview_answer(call, undone.preview)


async def undelete_role(service: RoleService, call: Call) -> bytes:
    etag = decode_undelete_role(call.body)
    return encode_resource(role_json(await service.undelete_role(call.name, etag=etag)))


async def query_testable_permissions(call: Call) -> bytes:
    check_query_testable_permissions(call.body)
    return encode_resource(testable_permissions_json())


def _list_options(call: Call) -> tuple[bool, bool]:
    """Decodes whether a list shows permissions, and whether it shows deleted roles.  Raises InvalidArgument."""
    view, deleted = call.query.get("view", ""), call.query.get("showDeleted", call.query.get("show_deleted", ""))
    if view not in _VIEWS:
        raise InvalidArgument(f"view must be BASIC or FULL (view={view[:100]}).")
    if deleted.lower() not in ("", "true", "false"):
        raise InvalidArgument(f"showDeleted must be true or false (showDeleted={deleted[:100]}).")
    return view == "FULL", deleted.lower() == "true"


# --- JSON ---------------------------------------------------------------------------------------------------


_MUTABLE = ("title", "description", "included_permissions", "stage")
_IMMUTABLE = ("name", "etag", "deleted")
_UNSPECIFIED = "ALPHA"  # the stage that Google takes a role without one for


class RoleBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """A role in a request.  `name`, `etag` and `deleted` may be present, as the caller read them."""

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
    """A request for all permissions.  Its fields have no effect: the response has all of them, for any resource."""

    full_resource_name: str = ""
    page_size: int = 0
    page_token: str = ""


_create = msgspec.json.Decoder(CreateRoleRequest)
_role = msgspec.json.Decoder(RoleBody)
_undelete = msgspec.json.Decoder(UndeleteRoleRequest)
_query = msgspec.json.Decoder(QueryTestablePermissionsRequest)


def decode_create_role(body: bytes) -> tuple[str, Role]:
    """Decodes the id of a new role, and the role without a name.  Raises InvalidArgument."""
    request = decode_request(_create, body)
    return request.role_id, _changed(Role(""), request.role, _MUTABLE)


def decode_update_role(body: bytes, paths: Sequence[str]) -> tuple[RoleBody, Sequence[str]]:
    """Decodes a role and the fields of it to change; without a mask, those that are present.  Raises
    InvalidArgument.
    """
    wanted = decode_request(_role, body)
    if paths:
        check_field_mask(paths, resource="role", mutable=_MUTABLE, immutable=_IMMUTABLE)
    return wanted, paths or [field for field in _MUTABLE if getattr(wanted, field) is not None]


def updated(role: Role, wanted: RoleBody, paths: Sequence[str]) -> Role:
    """Returns the role with those fields changed."""
    return _changed(role, wanted, paths)


def decode_undelete_role(body: bytes) -> bytes:
    """Decodes the etag.  Raises InvalidArgument."""
    return etag_from(decode_request(_undelete, body).etag)


def check_query_testable_permissions(body: bytes) -> None:
    """Raises InvalidArgument."""
    decode_request(_query, body)


def testable_permissions_json() -> dict[str, Any]:
    return {"permissions": [{"name": name, "stage": "GA"} for name in sorted(PERMISSIONS)]}


def etag_from(text: str) -> bytes:
    """Decodes base64 of either alphabet.  Raises InvalidArgument."""
    try:
        return urlsafe_b64decode(text.replace("+", "-").replace("/", "_") + "=" * (-len(text) % 4))
    except (NotBase64, ValueError):
        raise InvalidArgument("etag must be base64, as it was read.") from None


def role_json(role: Role, *, full: bool = True) -> dict[str, Any]:
    """Encodes a role; `full`: with its permissions."""
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
