"""Subscriber's subscriptions: google.pubsub.v1.Subscription and what it means, and the calls."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from broker.access.policies.authorizer import Required
from broker.domain.errors import Aborted
from broker.domain.field_mask import Update, unknown_path
from broker.domain.names import leaf
from broker.domain.refusals import refuse_unsupported
from broker.domain.retry_policy import RetryPolicy
from broker.domain.subscription import (
    EXTENSION_NAMES,
    KEPT_FIELDS,
    UNSUPPORTED_FIELDS,
    DeadLetterPolicy,
    Extensions,
    Subscription,
    wanted_subscription,
)
from broker.front.generated import messages
from broker.front.permissions import to_act_as
from broker.front.resources.call import EMPTY, Answer, ResourceCall
from broker.front.resources.kept_fields import kept_from_message, put_kept
from broker.front.resources.push_config import push_config_from, push_config_message
from broker.front.resources.requests import given_fields, page_of, project_name, resource_name
from broker.front.resources.times import from_timedelta, to_timedelta
from broker.front.resources.transforms import transform_messages, transforms_from
from broker.front.resources.updates import extensions_named, update_of


def subscription_from(message: Any, *, extensions: Extensions | None = None) -> Subscription:
    """The subscription that a call wants.  Raises InvalidArgument."""
    refuse_unsupported(given_fields(message), UNSUPPORTED_FIELDS)
    given: dict[str, Any] = {}
    if message.HasField("message_retention_duration"):
        duration = message.message_retention_duration
        given["message_retention"] = to_timedelta(duration, "messageRetentionDuration")
    if message.HasField("expiration_policy"):
        policy = message.expiration_policy
        ttl = to_timedelta(policy.ttl, "expirationPolicy.ttl") if policy.HasField("ttl") else None
        given["expiration_ttl"] = ttl
    return wanted_subscription(
        name=message.name,
        topic=message.topic,
        ack_deadline_seconds=message.ack_deadline_seconds,
        retain_acked_messages=message.retain_acked_messages,
        labels=dict(message.labels),
        filter=message.filter,
        enable_message_ordering=message.enable_message_ordering,
        enable_exactly_once_delivery=message.enable_exactly_once_delivery,
        dead_letter_policy=_dead_letter_policy(message),
        retry_policy=_retry_policy(message),
        push_config=push_config_from(message.push_config),
        extensions=extensions or Extensions(),
        kept=kept_from_message(message, KEPT_FIELDS),
        transforms=transforms_from(message.message_transforms),
        **given,
    )


def _dead_letter_policy(message: Any) -> DeadLetterPolicy | None:
    if not message.HasField("dead_letter_policy"):
        return None
    return DeadLetterPolicy(**{field.name: value for field, value in message.dead_letter_policy.ListFields()})


def _retry_policy(message: Any) -> RetryPolicy | None:
    if not message.HasField("retry_policy"):
        return None
    given = message.retry_policy.ListFields()
    return RetryPolicy(**{f.name: to_timedelta(value, f"retryPolicy.{f.json_name}") for f, value in given})


def subscription_message(subscription: Subscription) -> Any:
    """As the service prints it: `push_config` and `expiration_policy` always, also where they are empty."""
    s = subscription
    message = messages.Subscription(
        name=s.name,
        topic=s.topic,
        push_config=push_config_message(s.push_config),
        ack_deadline_seconds=s.ack_deadline_seconds,
        retain_acked_messages=s.retain_acked_messages,
        message_retention_duration=from_timedelta(s.message_retention),
        labels=s.labels,
        enable_message_ordering=s.enable_message_ordering,
        enable_exactly_once_delivery=s.enable_exactly_once_delivery,
        filter=s.filter,
        detached=s.detached,
        state=s.state,
    )
    message.expiration_policy.SetInParent()
    if s.expiration_ttl is not None:
        message.expiration_policy.ttl.CopyFrom(from_timedelta(s.expiration_ttl))
    if s.dead_letter_policy is not None:
        message.dead_letter_policy.dead_letter_topic = s.dead_letter_policy.dead_letter_topic
        message.dead_letter_policy.max_delivery_attempts = s.dead_letter_policy.max_delivery_attempts
    if s.retry_policy is not None:
        message.retry_policy.minimum_backoff.CopyFrom(from_timedelta(s.retry_policy.minimum_backoff))
        message.retry_policy.maximum_backoff.CopyFrom(from_timedelta(s.retry_policy.maximum_backoff))
    if s.topic_message_retention is not None:
        message.topic_message_retention_duration.CopyFrom(from_timedelta(s.topic_message_retention))
    message.message_transforms.extend(transform_messages(s.transforms))
    put_kept(message, s.kept)
    return message


def _answer(subscription: Subscription) -> Answer:
    return Answer(subscription_message(subscription), subscription)


def _update(call: ResourceCall, given: Any, paths: Sequence[str]) -> Update[Subscription]:
    named = extensions_named(paths, "Subscription", EXTENSION_NAMES)
    if named and call.extensions is None:
        raise unknown_path(next(path for path in paths if path.startswith("extensions")), "Subscription")
    update = update_of(given, paths, subscription_message, subscription_from)
    if call.extensions is not None:
        update = replace(update, wanted=partial(_with_extensions, update, named, call.extensions))
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


async def create_subscription(call: ResourceCall, request: Any) -> Answer:
    wanted = subscription_from(request, extensions=call.extensions)
    service = call.services.subscriptions
    if call.or_update is None:
        return _answer(await service.create_subscription(wanted))
    return _answer(await service.create_or_update_subscription(wanted, _update(call, request, call.or_update)))


async def get_subscription(call: ResourceCall, request: Any) -> Answer:
    name = resource_name(request.subscription, "subscriptions")
    return _answer(await call.services.subscriptions.get_subscription(name))


async def update_subscription(call: ResourceCall, request: Any) -> Answer:
    resource_name(request.subscription.name, "subscriptions")
    update = _update(call, request.subscription, list(request.update_mask.paths))
    return _answer(await call.services.subscriptions.update_subscription(update))


async def delete_subscription(call: ResourceCall, request: Any) -> Answer:
    name = resource_name(request.subscription, "subscriptions")
    await call.services.subscriptions.delete_subscription(name)
    return EMPTY


async def detach_subscription(call: ResourceCall, request: Any) -> Answer:
    name = resource_name(request.subscription, "subscriptions")
    await call.services.subscriptions.detach_subscription(name)
    return EMPTY


async def modify_push_config(call: ResourceCall, request: Any) -> Answer:
    name = resource_name(request.subscription, "subscriptions")
    await call.services.subscriptions.modify_push_config(name, push_config_from(request.push_config))
    return EMPTY


async def list_subscriptions(call: ResourceCall, request: Any) -> Answer:
    project = project_name(request.project)
    found, token = await call.services.subscriptions.list_subscriptions(project, page_of(request))
    shown = map(subscription_message, found)
    return Answer(messages.ListSubscriptionsResponse(subscriptions=shown, next_page_token=token), list(found))
