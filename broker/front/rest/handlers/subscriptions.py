"""The Subscriber service's subscriptions."""

from broker.domain.errors import AlreadyExists, NotFound
from broker.domain.field_mask import parse_field_mask
from broker.domain.subscription import Subscription
from broker.front.rest.call import Call
from broker.front.rest.codec.lists import decode_page, encode_list
from broker.front.rest.codec.resources import encode_resource
from broker.front.rest.codec.subscriptions import (
    decode_push_config,
    decode_subscription,
    decode_update_subscription,
    subscription_json,
)


async def create_subscription(call: Call) -> bytes:
    """PUT creates; with an updateMask in the query it changes the subscription if that exists already (A12)."""
    wanted = decode_subscription(call.body, call.name)
    if call.update_mask is None:
        subscription = await call.services.subscriptions.create_subscription(wanted)
    else:
        subscription = await _create_or_update(call, wanted, parse_field_mask(call.update_mask))
    return encode_resource(subscription_json(subscription))


async def _create_or_update(call: Call, wanted: Subscription, paths: list[str]) -> Subscription:
    # Update first: what only a creation looks at, such as the topic, may be absent or deleted by now.
    service = call.services.subscriptions
    try:
        return await service.update_subscription(wanted, paths)
    except NotFound:
        pass
    try:
        return await service.create_subscription(wanted)
    except AlreadyExists:  # another caller created it in between
        return await service.update_subscription(wanted, paths)


async def get_subscription(call: Call) -> bytes:
    return encode_resource(subscription_json(await call.services.subscriptions.get_subscription(call.name)))


async def update_subscription(call: Call) -> bytes:
    wanted, paths = decode_update_subscription(call.body, call.name, call.update_mask)
    subscription = await call.services.subscriptions.update_subscription(wanted, paths)
    return encode_resource(subscription_json(subscription))


async def delete_subscription(call: Call) -> bytes:
    await call.services.subscriptions.delete_subscription(call.name)
    return encode_resource({})


async def detach_subscription(call: Call) -> bytes:
    await call.services.subscriptions.detach_subscription(call.name)
    return encode_resource({})


async def modify_push_config(call: Call) -> bytes:
    await call.services.subscriptions.modify_push_config(call.name, decode_push_config(call.body))
    return encode_resource({})


async def list_subscriptions(call: Call) -> bytes:
    page = decode_page(call.query)
    subscriptions, token = await call.services.subscriptions.list_subscriptions(call.name, page)
    return encode_list("subscriptions", [subscription_json(s) for s in subscriptions], token)
