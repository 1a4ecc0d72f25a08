"""The calls about share links, an extension."""

from typing import Any

import msgspec

from broker.access.share_links.share_link import ShareLink
from broker.api.rest.call import Call
from broker.api.rest.codec.lists import decode_page_parameters, encode_list
from broker.api.rest.codec.requests import decode_request
from broker.api.rest.codec.resources import encode_resource
from broker.api.rest.previews import done_or_preview, safeguards_of_query
from broker.features.share_links.service import PAGE, ShareLinkService
from broker.model.page import parse_page
from broker.model.timestamps import format_timestamp


async def create_share_link(service: ShareLinkService, call: Call) -> bytes:
    request = decode_create_share_link(call.body)
    link, token = await service.create_share_link(
        call.name, call.caller, permissions=request.permissions, ttl=request.ttl
    )
    return encode_resource(share_link_json(link) | {"path": f"{PAGE}#{token}"})


async def list_share_links(service: ShareLinkService, call: Call) -> bytes:
    page = parse_page(*decode_page_parameters(call.query), prefix="")
    links, token = await service.list_share_links(call.name, page)
    return encode_list("shareLinks", [share_link_json(link) for link in links], token)


async def delete_share_link(service: ShareLinkService, call: Call) -> bytes:
    return await done_or_preview(call, await service.delete_share_link(call.name, safeguards_of_query(call)))


# --- JSON ---------------------------------------------------------------------------------------------------


class CreateShareLinkRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    permissions: list[str] = []
    ttl: str = ""


_create = msgspec.json.Decoder(CreateShareLinkRequest)


def decode_create_share_link(body: bytes) -> CreateShareLinkRequest:
    """Raises InvalidArgument."""
    return decode_request(_create, body)


def share_link_json(link: ShareLink) -> dict[str, Any]:
    """Encodes a link, without its token, which is not stored."""
    return {
        "name": link.name,
        "permissions": list(link.permissions),
        "creator": link.creator,
        "createTime": format_timestamp(link.created_at),
        "expireTime": format_timestamp(link.expires_at),
    }
