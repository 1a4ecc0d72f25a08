"""The calls about service accounts and their keys."""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from broker.access.principals.service_account import ServiceAccount, ServiceAccountKey
from broker.api.permissions import visible_in
from broker.api.rest.call import Call
from broker.api.rest.codec.lists import decode_page_parameters, encode_list
from broker.api.rest.codec.requests import decode_request
from broker.api.rest.codec.resources import encode_resource
from broker.api.rest.previews import done_or_preview, safeguards_of_query
from broker.features.iam.account_service import ServiceAccountService
from broker.model.errors import InvalidArgument
from broker.model.names import leaf
from broker.model.page import parse_page
from broker.model.timestamps import format_timestamp


async def create_service_account(service: ServiceAccountService, call: Call) -> bytes:
    request = decode_create_service_account(call.body)
    account = await service.create_service_account(
        call.name,
        request.account_id,
        display_name=request.service_account.display_name,
        description=request.service_account.description,
    )
    return encode_resource(service_account_json(account))


async def get_service_account(service: ServiceAccountService, call: Call) -> bytes:
    return encode_resource(service_account_json(await service.get_service_account(call.name)))


async def list_service_accounts(service: ServiceAccountService, call: Call) -> bytes:
    page = parse_page(*decode_page_parameters(call.query))
    page = replace(page, only=visible_in(call.required, call.name))
    accounts, token = await service.list_service_accounts(call.name, page)
    return encode_list("accounts", [service_account_json(account) for account in accounts], token)


async def disable_service_account(service: ServiceAccountService, call: Call) -> bytes:
    await service.set_disabled(call.name, disabled=True)
    return encode_resource({})


async def enable_service_account(service: ServiceAccountService, call: Call) -> bytes:
    await service.set_disabled(call.name, disabled=False)
    return encode_resource({})


async def delete_service_account(service: ServiceAccountService, call: Call) -> bytes:
    return await done_or_preview(call, await service.delete_service_account(call.name, safeguards_of_query(call)))


async def create_key(service: ServiceAccountService, call: Call) -> bytes:
    check_create_key(call.body)
    account, key, file = await service.create_key(call.name)
    return encode_resource(key_json(account, key, file))


async def get_key(service: ServiceAccountService, call: Call) -> bytes:
    return encode_resource(key_json(*await service.get_key(call.name)))


async def list_keys(service: ServiceAccountService, call: Call) -> bytes:
    is_listed = decode_key_types(call.query)
    account, keys = await service.list_keys(call.name)
    return encode_list("keys", [key_json(account, key) for key in keys if is_listed], "")


async def delete_key(service: ServiceAccountService, call: Call) -> bytes:
    return await done_or_preview(call, await service.delete_key(call.name, safeguards_of_query(call)))


# --- JSON ---------------------------------------------------------------------------------------------------


_FILE, _ALGORITHM = "TYPE_GOOGLE_CREDENTIALS_FILE", "KEY_ALG_RSA_2048"
_USER_MANAGED, _UNSPECIFIED = "USER_MANAGED", "KEY_TYPE_UNSPECIFIED"
_KEY_TYPES = frozenset((_USER_MANAGED, _UNSPECIFIED, "SYSTEM_MANAGED"))
_NEVER = format_timestamp(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC))


class NewServiceAccount(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The fields of a service account that a caller may set."""

    display_name: str = ""
    description: str = ""


class CreateServiceAccountRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    account_id: str = ""
    service_account: NewServiceAccount = msgspec.field(default_factory=NewServiceAccount)


class CreateServiceAccountKeyRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    private_key_type: str = ""
    key_algorithm: str = ""


_create_account = msgspec.json.Decoder(CreateServiceAccountRequest)
_create_key = msgspec.json.Decoder(CreateServiceAccountKeyRequest)


def decode_create_service_account(body: bytes) -> CreateServiceAccountRequest:
    """Raises InvalidArgument."""
    return decode_request(_create_account, body)


def check_create_key(body: bytes) -> None:
    """Raises InvalidArgument for a kind of key that the broker does not create."""
    request = decode_request(_create_key, body)
    for field, value, only in (
        ("private_key_type", request.private_key_type, _FILE),
        ("key_algorithm", request.key_algorithm, _ALGORITHM),
    ):
        if value not in ("", only, f"{field.upper().removeprefix('PRIVATE_')}_UNSPECIFIED"):
            raise InvalidArgument(f"{field} must be {only}, or be left out ({field}={value[:100]}).")


def decode_key_types(query: Mapping[str, str]) -> bool:
    """Decodes whether a list of keys contains user-managed keys, as all keys are.  Raises InvalidArgument."""
    given = {one for one in query.get("keyTypes", query.get("key_types", "")).split(",") if one}
    if unknown := given - _KEY_TYPES:
        raise InvalidArgument(
            f"keyTypes must be of {', '.join(sorted(_KEY_TYPES))} (keyTypes={min(unknown)[:100]})."
        )
    return given <= {_UNSPECIFIED} or _USER_MANAGED in given


def service_account_json(account: ServiceAccount) -> dict[str, Any]:
    body = {
        "name": account.name,
        "projectId": leaf(account.project),
        "uniqueId": account.unique_id,
        "email": account.email,
        "displayName": account.display_name,
        "description": account.description,
        "oauth2ClientId": account.unique_id,
        "disabled": account.disabled,
    }
    return {name: value for name, value in body.items() if value not in ("", False)}


def key_json(
    account: ServiceAccount, key: ServiceAccountKey, file: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Encodes a key; `file`: the file for its holder, if the key has just been created."""
    body = {
        "name": f"{account.name}/keys/{key.key_id}",
        "keyAlgorithm": _ALGORITHM,
        "keyOrigin": "GOOGLE_PROVIDED",
        "keyType": _USER_MANAGED,
        "validAfterTime": format_timestamp(key.created_at),
        "validBeforeTime": _NEVER,
    }
    if file is not None:
        text = msgspec.json.format(msgspec.json.encode(file), indent=2) + b"\n"
        body |= {"privateKeyType": _FILE, "privateKeyData": b64encode(text).decode("ascii")}
    return body
