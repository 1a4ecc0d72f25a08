"""The calls about API keys, an extension."""

from typing import Any

import msgspec

from broker.access.principals.api_key import ApiKey
from broker.api.rest.call import Call
from broker.api.rest.codec.lists import decode_page_parameters, encode_list
from broker.api.rest.codec.requests import decode_request
from broker.api.rest.codec.resources import encode_resource
from broker.api.rest.previews import done_or_preview, safeguards_of_query
from broker.features.iam.api_key_service import ApiKeyService
from broker.model.names import leaf
from broker.model.page import parse_page
from broker.model.timestamps import format_timestamp


async def create_api_key(service: ApiKeyService, call: Call) -> bytes:
    request = decode_create_api_key(call.body)
    key, text = await service.create_api_key(
        call.name, display_name=request.display_name, roles=request.roles, resources=request.resources
    )
    return encode_resource(api_key_json(key) | {"keyString": text})


async def get_api_key(service: ApiKeyService, call: Call) -> bytes:
    return encode_resource(api_key_json(await service.get_api_key(call.name)))


async def list_api_keys(service: ApiKeyService, call: Call) -> bytes:
    page = parse_page(*decode_page_parameters(call.query))
    keys, token = await service.list_api_keys(call.name, page)
    return encode_list("keys", [api_key_json(key) for key in keys], token)


async def delete_api_key(service: ApiKeyService, call: Call) -> bytes:
    return await done_or_preview(call, await service.delete_api_key(call.name, safeguards_of_query(call)))


# --- JSON ---------------------------------------------------------------------------------------------------


class CreateApiKeyRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    display_name: str = ""
    roles: list[str] = []
    resources: list[str] = []


_create = msgspec.json.Decoder(CreateApiKeyRequest)


def decode_create_api_key(body: bytes) -> CreateApiKeyRequest:
    """Raises InvalidArgument."""
    return decode_request(_create, body)


def api_key_json(key: ApiKey) -> dict[str, Any]:
    """Encodes an API key, without the key string, which is not stored."""
    body: dict[str, Any] = {"name": key.name, "uid": leaf(key.name)}
    if key.display_name:
        body["displayName"] = key.display_name
    body["roles"] = list(key.roles)
    if key.resources:
        body["resources"] = list(key.resources)
    return body | {"createTime": format_timestamp(key.created_at)}
