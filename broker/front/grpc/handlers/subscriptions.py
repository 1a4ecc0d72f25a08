"""The Subscriber service's subscriptions."""

from broker.front.generated import messages
from broker.front.grpc.call import UnaryCall
from broker.front.grpc.codec.push_config import push_config_from
from broker.front.grpc.codec.requests import decode_request
from broker.front.grpc.codec.subscriptions import subscription_from, subscription_message
from broker.front.resources.requests import mask_paths, page_of, project_name, resource_name


async def create_subscription(call: UnaryCall, body: bytes) -> bytes:
    wanted = subscription_from(decode_request(messages.Subscription, body))
    subscription = await call.services.subscriptions.create_subscription(wanted)
    return subscription_message(subscription).SerializeToString()  # type: ignore[no-any-return]


async def get_subscription(call: UnaryCall, body: bytes) -> bytes:
    request = decode_request(messages.GetSubscriptionRequest, body)
    name = resource_name(request.subscription, "subscriptions")
    subscription = await call.services.subscriptions.get_subscription(name)
    return subscription_message(subscription).SerializeToString()  # type: ignore[no-any-return]


async def update_subscription(call: UnaryCall, body: bytes) -> bytes:
    request = decode_request(messages.UpdateSubscriptionRequest, body)
    resource_name(request.subscription.name, "subscriptions")
    wanted = subscription_from(request.subscription)
    subscription = await call.services.subscriptions.update_subscription(wanted, mask_paths(request))
    return subscription_message(subscription).SerializeToString()  # type: ignore[no-any-return]


async def delete_subscription(call: UnaryCall, body: bytes) -> bytes:
    request = decode_request(messages.DeleteSubscriptionRequest, body)
    name = resource_name(request.subscription, "subscriptions")
    await call.services.subscriptions.delete_subscription(name)
    return b""


async def detach_subscription(call: UnaryCall, body: bytes) -> bytes:
    request = decode_request(messages.DetachSubscriptionRequest, body)
    name = resource_name(request.subscription, "subscriptions")
    await call.services.subscriptions.detach_subscription(name)
    return b""


async def modify_push_config(call: UnaryCall, body: bytes) -> bytes:
    request = decode_request(messages.ModifyPushConfigRequest, body)
    name = resource_name(request.subscription, "subscriptions")
    await call.services.subscriptions.modify_push_config(name, push_config_from(request.push_config))
    return b""


async def list_subscriptions(call: UnaryCall, body: bytes) -> bytes:
    request = decode_request(messages.ListSubscriptionsRequest, body)
    project = project_name(request.project)
    found, token = await call.services.subscriptions.list_subscriptions(project, page_of(request))
    response = messages.ListSubscriptionsResponse(
        subscriptions=map(subscription_message, found), next_page_token=token
    )
    return response.SerializeToString()  # type: ignore[no-any-return]
