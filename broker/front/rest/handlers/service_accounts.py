"""Service accounts and their keys."""

from broker.domain.page import parse_page
from broker.front.rest.call import Call
from broker.front.rest.codec.lists import decode_page_parameters, encode_list
from broker.front.rest.codec.resources import encode_resource
from broker.front.rest.codec.service_accounts import (
    check_create_key,
    decode_create_service_account,
    decode_key_types,
    key_json,
    service_account_json,
)


async def create_service_account(call: Call) -> bytes:
    request = decode_create_service_account(call.body)
    account = await call.services.service_accounts.create_service_account(
        call.name,
        request.account_id,
        display_name=request.service_account.display_name,
        description=request.service_account.description,
    )
    return encode_resource(service_account_json(account))


async def get_service_account(call: Call) -> bytes:
    return encode_resource(
        service_account_json(await call.services.service_accounts.get_service_account(call.name))
    )


async def list_service_accounts(call: Call) -> bytes:
    page = parse_page(*decode_page_parameters(call.query))
    accounts, token = await call.services.service_accounts.list_service_accounts(call.name, page)
    return encode_list("accounts", [service_account_json(account) for account in accounts], token)


async def disable_service_account(call: Call) -> bytes:
    await call.services.service_accounts.set_disabled(call.name, disabled=True)
    return encode_resource({})


async def enable_service_account(call: Call) -> bytes:
    await call.services.service_accounts.set_disabled(call.name, disabled=False)
    return encode_resource({})


async def delete_service_account(call: Call) -> bytes:
    await call.services.service_accounts.delete_service_account(call.name)
    return encode_resource({})


async def create_key(call: Call) -> bytes:
    check_create_key(call.body)
    account, key, file = await call.services.service_accounts.create_key(call.name)
    return encode_resource(key_json(account, key, file))


async def get_key(call: Call) -> bytes:
    return encode_resource(key_json(*await call.services.service_accounts.get_key(call.name)))


async def list_keys(call: Call) -> bytes:
    is_listed = decode_key_types(call.query)
    account, keys = await call.services.service_accounts.list_keys(call.name)
    return encode_list("keys", [key_json(account, key) for key in keys if is_listed], "")


async def delete_key(call: Call) -> bytes:
    await call.services.service_accounts.delete_key(call.name)
    return encode_resource({})
