"""The calls about subscriptions of Subscriber, and the conversion from and to google.pubsub.v1.Subscription."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from broker.access.policies.authorizer import Required
from broker.api.generated import messages
from broker.api.google.call import EMPTY, Answer, ResourceCall
from broker.api.google.fields import from_message, put_resource, read_resource
from broker.api.google.requests import page_of, project_name, resource_name
from broker.api.google.times import from_timedelta, to_timedelta
from broker.api.google.transforms import transform_messages, transforms_from
from broker.api.google.updates import extensions_named, update_of
from broker.api.permissions import to_act_as, visible_in
from broker.core.resources.subscription_extensions import decode_extensions, subscription_fields
from broker.core.resources.subscription_service import SubscriptionService
from broker.model.errors import Aborted
from broker.model.field_mask import Update, unknown_path
from broker.model.names import leaf
from broker.model.push_config import PushConfig
from broker.model.subscription import (
    EXTENSION_NAMES,
    KEPT_FIELDS,
    UNSUPPORTED_FIELDS,
    Extensions,
    Subscription,
    wanted_subscription,
)

_OUTPUT_ONLY = ("detached", "topic_message_retention")


def subscription_from(message: Any, *, extensions: Extensions | None = None) -> Subscription:
    """The subscription that a call wants.  Raises InvalidArgument."""
    given = read_resource(
        Subscription, message, kept=KEPT_FIELDS, unsupported=UNSUPPORTED_FIELDS, without=_OUTPUT_ONLY
    )
    if message.HasField("expiration_policy"):
        policy = message.expiration_policy
        ttl = to_timedelta(policy.ttl, "expirationPolicy.ttl") if policy.HasField("ttl") else None
        given["expiration_ttl"] = ttl
    return wanted_subscription(
        extensions=extensions or Extensions(),
        transforms=transforms_from(message.message_transforms),
        **given,
    )


def subscription_message(subscription: Subscription) -> Any:
    """Returns the message, with `push_config` and `expiration_policy` also where they are empty, as Google does."""
    message = messages.Subscription(state=subscription.state)
    put_resource(message, subscription)
    message.expiration_policy.SetInParent()
    if subscription.expiration_ttl is not None:
        message.expiration_policy.ttl.CopyFrom(from_timedelta(subscription.expiration_ttl))
    message.message_transforms.extend(transform_messages(subscription.transforms))
    return message


def subscription_answer(subscription: Subscription) -> Answer:
    return Answer(subscription_message(subscription), subscription, subscription_fields)


def _extensions_of(call: ResourceCall) -> Extensions | None:
    """The extensions that a call gives; None over gRPC.  Raises InvalidArgument."""
    return None if call.extension_fields is None else decode_extensions(call.extension_fields)


def _update(
    call: ResourceCall, given: Any, paths: Sequence[str], extensions: Extensions | None
) -> Update[Subscription]:
    named = extensions_named(paths, "Subscription", EXTENSION_NAMES)
    if named and extensions is None:
        raise unknown_path(next(path for path in paths if path.startswith("extensions")), "Subscription")
    update = update_of(given, paths, subscription_message, subscription_from)
    if extensions is not None:
        update = replace(update, wanted=partial(_with_extensions, update, named, extensions))
    if call.allowed is None or "push_config" not in update.fields:
        return update
    return replace(update, wanted=partial(_with_allowed_token, update, call.allowed))


def _with_extensions(
    update: Update[Subscription], named: Collection[str], wanted: Extensions, current: Subscription
) -> Subscription:
    return replace(update.wanted(current), extensions=current.extensions.with_those(named, wanted))


def _with_allowed_token(
    update: Update[Subscription], allowed: Sequence[Required], current: Subscription
) -> Subscription:
    """The token that pushes carry from now on may have got there since the permissions were looked at, by another
    call: whoever changes the rest of the config would have it sent elsewhere.  Raises Aborted.
    """
    wanted = update.wanted(current)
    token = wanted.push_config.oidc_token
    if token is not None and to_act_as(token.service_account_email) not in allowed:
        raise Aborted(
            "The subscription's push config has got another token meanwhile; read it and try again "
            f"(resource={leaf(update.name)})."
        )
    return wanted


async def create_subscription(service: SubscriptionService, call: ResourceCall, request: Any) -> Answer:
    extensions = _extensions_of(call)
    wanted = subscription_from(request, extensions=extensions)
    if call.or_update is None:
        return subscription_answer(await service.create_subscription(wanted))
    update = _update(call, request, call.or_update, extensions)
    return subscription_answer(await service.create_or_update_subscription(wanted, update))


async def get_subscription(service: SubscriptionService, call: ResourceCall, request: Any) -> Answer:
    name = resource_name(request.subscription, "subscriptions")
    return subscription_answer(await service.get_subscription(name))


async def update_subscription(service: SubscriptionService, call: ResourceCall, request: Any) -> Answer:
    extensions = _extensions_of(call)
    resource_name(request.subscription.name, "subscriptions")
    update = _update(call, request.subscription, list(request.update_mask.paths), extensions)
    return subscription_answer(await service.update_subscription(update))


async def delete_subscription(service: SubscriptionService, call: ResourceCall, request: Any) -> Answer:
    name = resource_name(request.subscription, "subscriptions")
    return Answer(messages.Empty(), preview=await service.delete_subscription(name, call.safeguards))


async def detach_subscription(service: SubscriptionService, call: ResourceCall, request: Any) -> Answer:
    name = resource_name(request.subscription, "subscriptions")
    return Answer(messages.Empty(), preview=await service.detach_subscription(name, call.safeguards))


async def modify_push_config(service: SubscriptionService, call: ResourceCall, request: Any) -> Answer:
    name = resource_name(request.subscription, "subscriptions")
    await service.modify_push_config(name, from_message(PushConfig, request.push_config))
    return EMPTY


async def list_subscriptions(service: SubscriptionService, call: ResourceCall, request: Any) -> Answer:
    project = project_name(request.project)
    page = page_of(request, visible_in(call.allowed, project))
    found, token = await service.list_subscriptions(project, page)
    shown = map(subscription_message, found)
    response = messages.ListSubscriptionsResponse(subscriptions=shown, next_page_token=token)
    return Answer(response, list(found), subscription_fields)
