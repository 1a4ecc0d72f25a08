"""API keys."""

from typing import Any

import msgspec

from broker.domain.api_key import ApiKey
from broker.domain.names import leaf
from broker.domain.timestamps import format_timestamp
from broker.front.rest.codec.requests import decode_request


class CreateApiKeyRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    display_name: str = ""
    roles: list[str] = []
    resources: list[str] = []


_create = msgspec.json.Decoder(CreateApiKeyRequest)


def decode_create_api_key(body: bytes) -> CreateApiKeyRequest:
    """Raises InvalidArgument."""
    return decode_request(_create, body)


def api_key_json(key: ApiKey) -> dict[str, Any]:
    """Without the key itself, which is not kept."""
    body: dict[str, Any] = {"name": key.name, "uid": leaf(key.name)}
    if key.display_name:
        body["displayName"] = key.display_name
    body["roles"] = list(key.roles)
    if key.resources:
        body["resources"] = list(key.resources)
    return body | {"createTime": format_timestamp(key.created_at)}
