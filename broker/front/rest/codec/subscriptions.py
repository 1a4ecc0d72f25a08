"""Subscriptions on the wire."""

from collections.abc import Mapping
from typing import Any

import msgspec

from broker.domain.durations import format_duration
from broker.domain.field_mask import parse_field_mask
from broker.domain.push_config import PushConfig
from broker.domain.refusals import refuse_unsupported
from broker.domain.retry_policy import RetryPolicy
from broker.domain.subscription import (
    DEFAULT_DELIVERY_ATTEMPTS,
    DEFAULT_EXPIRATION_TTL,
    KEPT_FIELDS,
    UNSUPPORTED_FIELDS,
    DeadLetterPolicy,
    Extensions,
    Subscription,
    default_ack_deadline_seconds,
    default_retention,
)
from broker.front.resources.kept_fields import kept_from_json
from broker.front.rest.codec.push_config import (
    PushConfigBody,
    PushOptionsBody,
    push_config,
    push_config_json,
    push_options,
    push_options_json,
)
from broker.front.rest.codec.requests import Int32, decode_request
from broker.front.rest.codec.resources import given_fields, require_same_name
from broker.front.rest.codec.scalars import parse_duration


class ExpirationPolicyBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    ttl: str = ""


class RetryPolicyBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    minimum_backoff: str = ""
    maximum_backoff: str = ""


class DeadLetterPolicyBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    dead_letter_topic: str = ""
    max_delivery_attempts: Int32 = 0


class ExtensionsBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """What Google's subscriptions do not have."""

    one_per_ordering_key: bool = False
    push: PushOptionsBody | None = None


class SubscriptionBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """google.pubsub.v1.Subscription; the untyped fields at the end are output only and ignored."""

    name: str = ""
    topic: str = ""
    push_config: PushConfigBody = msgspec.field(default_factory=PushConfigBody)
    bigquery_config: dict[str, Any] = {}
    cloud_storage_config: dict[str, Any] = {}
    bigtable_config: dict[str, Any] = {}
    ack_deadline_seconds: Int32 = 0
    retain_acked_messages: bool = False
    message_retention_duration: str = ""
    labels: dict[str, str] = {}
    enable_message_ordering: bool = False
    extensions: ExtensionsBody = msgspec.field(default_factory=ExtensionsBody)
    expiration_policy: ExpirationPolicyBody | None = None
    filter: str = ""
    dead_letter_policy: DeadLetterPolicyBody | None = None
    retry_policy: RetryPolicyBody | None = None
    enable_exactly_once_delivery: bool = False
    message_transforms: list[dict[str, Any]] = []
    tags: dict[str, str] = {}
    detached: object = None
    topic_message_retention_duration: object = None
    state: object = None
    analytics_hub_subscription_info: object = None


class UpdateSubscriptionBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    subscription: SubscriptionBody = msgspec.field(default_factory=SubscriptionBody)
    update_mask: str = ""


class ModifyPushConfigBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    push_config: PushConfigBody = msgspec.field(default_factory=PushConfigBody)
    subscription: object = None  # in the path


_subscription = msgspec.json.Decoder(SubscriptionBody)
_update = msgspec.json.Decoder(UpdateSubscriptionBody)
_modify_push_config = msgspec.json.Decoder(ModifyPushConfigBody)


def decode_subscription(body: bytes, name: str) -> Subscription:
    """The subscription that a create call wants.  Raises InvalidArgument."""
    return _from_body(decode_request(_subscription, body), name)


def decode_update_subscription(body: bytes, name: str, query_mask: str | None) -> tuple[Subscription, list[str]]:
    """The wanted subscription and the mask's paths; the mask may be a query parameter instead (Terraform)."""
    request = decode_request(_update, body)
    return _from_body(request.subscription, name), parse_field_mask(request.update_mask or query_mask or "")


def decode_push_config(body: bytes) -> PushConfig:
    """The push config of a modifyPushConfig call; without an endpoint it makes a pull subscription."""
    return push_config(decode_request(_modify_push_config, body).push_config)


def _from_body(body: SubscriptionBody, name: str) -> Subscription:
    refuse_unsupported(given_fields(body), UNSUPPORTED_FIELDS)
    require_same_name(body.name, name)
    ttl = _expiration_ttl(body.expiration_policy)
    retention = body.message_retention_duration
    kept = {json_name: getattr(body, path) for path, json_name in KEPT_FIELDS.items() if getattr(body, path)}
    return Subscription(
        name=name,
        topic=body.topic,
        ack_deadline_seconds=body.ack_deadline_seconds
        or default_ack_deadline_seconds(exactly_once=body.enable_exactly_once_delivery),
        retain_acked_messages=body.retain_acked_messages,
        message_retention=parse_duration(retention, "messageRetentionDuration")
        if retention
        else default_retention(ttl),
        labels=body.labels,
        expiration_ttl=ttl,
        filter=body.filter,
        enable_message_ordering=body.enable_message_ordering,
        extensions=Extensions(
            one_per_ordering_key=body.extensions.one_per_ordering_key, push=push_options(body.extensions.push)
        ),
        enable_exactly_once_delivery=body.enable_exactly_once_delivery,
        dead_letter_policy=_dead_letter_policy(body.dead_letter_policy),
        retry_policy=_retry_policy(body.retry_policy),
        push_config=push_config(body.push_config),
        kept=kept_from_json("Subscription", kept),
    )


def _expiration_ttl(body: ExpirationPolicyBody | None) -> Any:
    if body is None:
        return DEFAULT_EXPIRATION_TTL
    return parse_duration(body.ttl, "expirationPolicy.ttl") if body.ttl else None


def _dead_letter_policy(body: DeadLetterPolicyBody | None) -> DeadLetterPolicy | None:
    if body is None:
        return None
    return DeadLetterPolicy(
        dead_letter_topic=body.dead_letter_topic,
        max_delivery_attempts=body.max_delivery_attempts or DEFAULT_DELIVERY_ATTEMPTS,
    )


def _retry_policy(body: RetryPolicyBody | None) -> RetryPolicy | None:
    if body is None:
        return None
    given = {
        "minimum_backoff": body.minimum_backoff,
        "maximum_backoff": body.maximum_backoff,
    }
    return RetryPolicy(**{k: parse_duration(text, f"retryPolicy.{k}") for k, text in given.items() if text})


def subscription_json(subscription: Subscription) -> dict[str, Any]:
    """google.pubsub.v1.Subscription in JSON, as the service prints it: `pushConfig` always, defaults not."""
    s = subscription
    body: dict[str, Any] = {
        "name": s.name,
        "topic": s.topic,
        "pushConfig": push_config_json(s.push_config),
        "ackDeadlineSeconds": s.ack_deadline_seconds,
    }
    if s.retain_acked_messages:
        body["retainAckedMessages"] = True
    body["messageRetentionDuration"] = format_duration(s.message_retention)
    if s.labels:
        body["labels"] = s.labels
    body["expirationPolicy"] = {} if s.expiration_ttl is None else {"ttl": format_duration(s.expiration_ttl)}
    if s.filter:
        body["filter"] = s.filter
    if s.dead_letter_policy is not None:
        body["deadLetterPolicy"] = {
            "deadLetterTopic": s.dead_letter_policy.dead_letter_topic,
            "maxDeliveryAttempts": s.dead_letter_policy.max_delivery_attempts,
        }
    if s.retry_policy is not None:
        body["retryPolicy"] = _retry_policy_json(s.retry_policy)
    body |= _options_json(s)
    if s.detached:
        body["detached"] = True
    if s.topic_message_retention is not None:
        body["topicMessageRetentionDuration"] = format_duration(s.topic_message_retention)
    return body | {"state": s.state} | dict(s.kept)


def _options_json(subscription: Subscription) -> Mapping[str, Any]:
    """What is printed only if it is not the default."""
    extensions = _extensions_json(subscription.extensions)
    options: dict[str, tuple[bool, Any]] = {
        "enableMessageOrdering": (subscription.enable_message_ordering, True),
        "enableExactlyOnceDelivery": (subscription.enable_exactly_once_delivery, True),
        "extensions": (bool(extensions), extensions),
    }
    return {name: value for name, (is_set, value) in options.items() if is_set}


def _extensions_json(extensions: Extensions) -> Mapping[str, Any]:
    push = push_options_json(extensions.push)
    body: dict[str, Any] = {"onePerOrderingKey": True} if extensions.one_per_ordering_key else {}
    return body | ({"push": push} if push else {})


def _retry_policy_json(policy: RetryPolicy) -> Mapping[str, str]:
    return {
        "minimumBackoff": format_duration(policy.minimum_backoff),
        "maximumBackoff": format_duration(policy.maximum_backoff),
    }
