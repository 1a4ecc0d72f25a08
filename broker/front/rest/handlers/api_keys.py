"""API keys; an extension."""

from broker.domain.page import parse_page
from broker.front.rest.call import Call
from broker.front.rest.codec.api_keys import api_key_json, decode_create_api_key
from broker.front.rest.codec.lists import decode_page_parameters, encode_list
from broker.front.rest.codec.resources import encode_resource


async def create_api_key(call: Call) -> bytes:
    request = decode_create_api_key(call.body)
    key, text = await call.services.api_keys.create_api_key(
        call.name, display_name=request.display_name, roles=request.roles, resources=request.resources
    )
    return encode_resource(api_key_json(key) | {"keyString": text})


async def get_api_key(call: Call) -> bytes:
    return encode_resource(api_key_json(await call.services.api_keys.get_api_key(call.name)))


async def list_api_keys(call: Call) -> bytes:
    page = parse_page(*decode_page_parameters(call.query))
    keys, token = await call.services.api_keys.list_api_keys(call.name, page)
    return encode_list("keys", [api_key_json(key) for key in keys], token)


async def delete_api_key(call: Call) -> bytes:
    await call.services.api_keys.delete_api_key(call.name)
    return encode_resource({})
