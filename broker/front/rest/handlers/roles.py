"""Roles: a project's own, and those that are predefined."""

from broker.domain.errors import InvalidArgument
from broker.domain.field_mask import parse_field_mask
from broker.domain.page import parse_page
from broker.front.rest.call import Call
from broker.front.rest.codec import roles as codec
from broker.front.rest.codec.lists import decode_page_parameters, encode_list
from broker.front.rest.codec.resources import encode_resource

_VIEWS = ("", "BASIC", "FULL")  # of a list: without the permissions, or with them


async def create_role(call: Call) -> bytes:
    role_id, role = codec.decode_create_role(call.body)
    return encode_resource(codec.role_json(await call.services.roles.create_role(call.name, role_id, role)))


async def get_role(call: Call) -> bytes:
    return encode_resource(codec.role_json(await call.services.roles.get_role(call.name)))


async def list_roles(call: Call) -> bytes:
    page = parse_page(*decode_page_parameters(call.query))
    full, deleted = _list_options(call)
    roles, token = await call.services.roles.list_roles(call.name, page, deleted=deleted)
    return encode_list("roles", [codec.role_json(role, full=full) for role in roles], token)


async def get_predefined_role(call: Call) -> bytes:
    return encode_resource(codec.role_json(call.services.roles.get_predefined_role(call.name)))


async def list_predefined_roles(call: Call) -> bytes:
    page = parse_page(*decode_page_parameters(call.query), prefix="roles/")
    full, _ = _list_options(call)  # none of them is ever deleted
    if parent := call.query.get("parent", ""):
        raise InvalidArgument(
            "parent must be empty: the roles of a project are at /v1/projects/{project}/roles "
            f"(parent={parent[:100]})."
        )
    roles, token = call.services.roles.list_predefined_roles(page)
    return encode_list("roles", [codec.role_json(role, full=full) for role in roles], token)


async def update_role(call: Call) -> bytes:
    wanted, paths = codec.decode_update_role(call.body, parse_field_mask(call.update_mask or ""))
    role = await call.services.roles.update_role(
        call.name, lambda role: codec.updated(role, wanted, paths), etag=codec.etag_from(wanted.etag)
    )
    return encode_resource(codec.role_json(role))


async def delete_role(call: Call) -> bytes:
    etag = codec.etag_from(call.query.get("etag", ""))
    return encode_resource(codec.role_json(await call.services.roles.delete_role(call.name, etag=etag)))


async def undelete_role(call: Call) -> bytes:
    etag = codec.decode_undelete_role(call.body)
    return encode_resource(codec.role_json(await call.services.roles.undelete_role(call.name, etag=etag)))


async def query_testable_permissions(call: Call) -> bytes:
    codec.check_query_testable_permissions(call.body)
    return encode_resource(codec.testable_permissions_json())


def _list_options(call: Call) -> tuple[bool, bool]:
    """Whether a list has the permissions, and whether it has the deleted ones.  Raises InvalidArgument."""
    view, deleted = call.query.get("view", ""), call.query.get("showDeleted", call.query.get("show_deleted", ""))
    if view not in _VIEWS:
        raise InvalidArgument(f"view must be BASIC or FULL (view={view[:100]}).")
    if deleted.lower() not in ("", "true", "false"):
        raise InvalidArgument(f"showDeleted must be true or false (showDeleted={deleted[:100]}).")
    return view == "FULL", deleted.lower() == "true"
