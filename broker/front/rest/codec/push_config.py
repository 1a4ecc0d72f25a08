"""Push configs and the options of pushing on the wire."""

from collections.abc import Mapping
from typing import Any

import msgspec

from broker.domain.durations import format_duration
from broker.domain.errors import InvalidArgument
from broker.domain.push_config import CircuitBreaker, Digest, OidcToken, PushConfig, PushOptions, fingerprint
from broker.front.rest.codec.requests import Int32
from broker.front.rest.codec.scalars import parse_duration


class OidcTokenBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    service_account_email: str = ""
    audience: str = ""


class PubsubWrapperBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    pass


class NoWrapperBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    write_metadata: bool = False


class PushConfigBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """google.pubsub.v1.PushConfig."""

    push_endpoint: str = ""
    attributes: dict[str, str] = {}
    oidc_token: OidcTokenBody | None = None
    pubsub_wrapper: PubsubWrapperBody | None = None
    no_wrapper: NoWrapperBody | None = None


class DigestBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    max_messages: Int32 | None = None
    max_bytes: Int32 | None = None
    max_delay: str | None = None


class CircuitBreakerBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    failure_threshold: Int32 | None = None
    open_duration: str | None = None


class PushOptionsBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """What Google's push subscriptions do not have."""

    messages_per_second: float | None = None
    max_outstanding_requests: Int32 | None = None
    digest: DigestBody | None = None
    webhook_secrets: list[str] | None = None
    webhook_secret_fingerprints: list[str] = []
    circuit_breaker: CircuitBreakerBody | None = None


def push_config(body: PushConfigBody) -> PushConfig:
    """The push config in a body.  Raises InvalidArgument for what no push config can be."""
    if body.pubsub_wrapper is not None and body.no_wrapper is not None:
        raise InvalidArgument(
            "Invalid value at 'pushConfig' (oneof), oneof field 'wrapper' is already set. Cannot set 'noWrapper': "
            "only one of pubsubWrapper and noWrapper can be given."
        )
    wrapper = ""
    if body.pubsub_wrapper is not None:
        wrapper = "pubsub_wrapper"
    elif body.no_wrapper is not None:
        wrapper = "no_wrapper"
    return PushConfig(
        endpoint=body.push_endpoint,
        attributes=body.attributes,
        oidc_token=None if body.oidc_token is None else OidcToken(**msgspec.structs.asdict(body.oidc_token)),
        wrapper=wrapper,
        write_metadata=body.no_wrapper is not None and body.no_wrapper.write_metadata,
    )


def push_config_json(config: PushConfig) -> Mapping[str, Any]:
    """google.pubsub.v1.PushConfig in JSON; {} of a pull subscription."""
    body: dict[str, Any] = {}
    if config.endpoint:
        body["pushEndpoint"] = config.endpoint
    if config.attributes:
        body["attributes"] = config.attributes
    if config.oidc_token is not None:
        body["oidcToken"] = {"serviceAccountEmail": config.oidc_token.service_account_email}
        if config.oidc_token.audience:
            body["oidcToken"]["audience"] = config.oidc_token.audience
    if config.wrapper == "pubsub_wrapper":
        body["pubsubWrapper"] = {}
    if config.wrapper == "no_wrapper":
        body["noWrapper"] = {"writeMetadata": True} if config.write_metadata else {}
    return body


def push_options(body: PushOptionsBody | None) -> PushOptions:
    """The options in a body; what is absent has its default.  Raises InvalidArgument for a malformed duration."""
    if body is None:
        return PushOptions()
    return PushOptions(
        messages_per_second=body.messages_per_second,
        max_outstanding_requests=body.max_outstanding_requests,
        digest=None if body.digest is None else Digest(**_given(body.digest, "digest", "max_delay")),
        webhook_secrets=None if body.webhook_secrets is None else tuple(body.webhook_secrets),
        copied_fingerprints=tuple(body.webhook_secret_fingerprints),
        circuit_breaker=CircuitBreaker()
        if body.circuit_breaker is None
        else CircuitBreaker(**_given(body.circuit_breaker, "circuitBreaker", "open_duration")),
    )


def _given(body: msgspec.Struct, name: str, duration_field: str) -> dict[str, Any]:
    given = {field: value for field, value in msgspec.structs.asdict(body).items() if value is not None}
    if duration_field in given:
        where = f"extensions.push.{name}.{duration_field}"
        given[duration_field] = parse_duration(given[duration_field], where)
    return given


def push_options_json(options: PushOptions) -> Mapping[str, Any]:
    """What is not as by default; a digest and a circuit breaker in full, of secrets the fingerprints."""
    body: dict[str, Any] = {}
    if options.messages_per_second is not None:
        rate = options.messages_per_second
        body["messagesPerSecond"] = int(rate) if rate.is_integer() else rate
    if options.max_outstanding_requests is not None:
        body["maxOutstandingRequests"] = options.max_outstanding_requests
    if options.digest is not None:
        body["digest"] = {
            "maxMessages": options.digest.max_messages,
            "maxBytes": options.digest.max_bytes,
            "maxDelay": format_duration(options.digest.max_delay),
        }
    if options.webhook_secrets:
        body["webhookSecretFingerprints"] = [fingerprint(secret) for secret in options.webhook_secrets]
    if options.circuit_breaker != CircuitBreaker():
        body["circuitBreaker"] = {
            "failureThreshold": options.circuit_breaker.failure_threshold,
            "openDuration": format_duration(options.circuit_breaker.open_duration),
        }
    return body
