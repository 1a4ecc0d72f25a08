"""Subscriptions as google.pubsub.v1.Subscription."""

from datetime import timedelta
from typing import Any

from broker.domain.refusals import refuse_unsupported
from broker.domain.retry_policy import RetryPolicy
from broker.domain.subscription import (
    DEFAULT_DELIVERY_ATTEMPTS,
    DEFAULT_EXPIRATION_TTL,
    KEPT_FIELDS,
    UNSUPPORTED_FIELDS,
    DeadLetterPolicy,
    Subscription,
    default_ack_deadline_seconds,
    default_retention,
)
from broker.front.generated import messages
from broker.front.grpc.codec.push_config import push_config_from, push_config_message
from broker.front.resources.kept_fields import kept_from_message, put_kept
from broker.front.resources.requests import given_fields
from broker.front.resources.times import from_timedelta, to_timedelta


def subscription_from(message: Any) -> Subscription:
    """The subscription that a call wants.  Raises InvalidArgument."""
    refuse_unsupported(given_fields(message), UNSUPPORTED_FIELDS)
    exactly_once = message.enable_exactly_once_delivery
    ttl = _expiration_ttl(message)
    return Subscription(
        name=message.name,
        topic=message.topic,
        ack_deadline_seconds=message.ack_deadline_seconds
        or default_ack_deadline_seconds(exactly_once=exactly_once),
        retain_acked_messages=message.retain_acked_messages,
        message_retention=to_timedelta(message.message_retention_duration, "messageRetentionDuration")
        if message.HasField("message_retention_duration")
        else default_retention(ttl),
        labels=dict(message.labels),
        expiration_ttl=ttl,
        filter=message.filter,
        enable_message_ordering=message.enable_message_ordering,
        enable_exactly_once_delivery=exactly_once,
        dead_letter_policy=_dead_letter_policy(message),
        retry_policy=_retry_policy(message),
        push_config=push_config_from(message.push_config),
        kept=kept_from_message(message, KEPT_FIELDS),
    )


def _expiration_ttl(message: Any) -> timedelta | None:
    if not message.HasField("expiration_policy"):
        return DEFAULT_EXPIRATION_TTL
    policy = message.expiration_policy
    return to_timedelta(policy.ttl, "expirationPolicy.ttl") if policy.HasField("ttl") else None


def _dead_letter_policy(message: Any) -> DeadLetterPolicy | None:
    if not message.HasField("dead_letter_policy"):
        return None
    policy = message.dead_letter_policy
    return DeadLetterPolicy(
        dead_letter_topic=policy.dead_letter_topic,
        max_delivery_attempts=policy.max_delivery_attempts or DEFAULT_DELIVERY_ATTEMPTS,
    )


def _retry_policy(message: Any) -> RetryPolicy | None:
    if not message.HasField("retry_policy"):
        return None
    policy = message.retry_policy
    given = [field for field in ("minimum_backoff", "maximum_backoff") if policy.HasField(field)]
    return RetryPolicy(**{field: to_timedelta(getattr(policy, field), f"retryPolicy.{field}") for field in given})


def subscription_message(subscription: Subscription) -> Any:
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
    put_kept(message, s.kept)
    return message
