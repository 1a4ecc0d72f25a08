"""A subscription's extensions in JSON: options that Google's subscriptions do not have."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from broker.domain.alerts import NO_ALERTS, Alerts
from broker.domain.durations import format_duration
from broker.domain.journal import DEFAULT_RETENTION, NO_JOURNAL, Journal, JournalMode
from broker.domain.push_config import CircuitBreaker, Digest, PushOptions, fingerprint
from broker.domain.subscription import Extensions
from broker.front.rest.codec.requests import Int32, convert_json
from broker.front.rest.codec.scalars import parse_duration


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
    urgent: bool = False


class AlertsBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    age: str | None = None
    backlog: int | None = None


class JournalBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    mode: Literal["ALL", "FAILURES"]
    sample: float = 1.0
    retention: str | None = None


class ExtensionsBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    one_per_ordering_key: bool = False
    push: PushOptionsBody | None = None
    alerts: AlertsBody | None = None
    journal: JournalBody | None = None
    dead_letter_expired: bool = False


class _Beside(msgspec.Struct):
    """What the JSON of a subscription has beside Google's fields, for the paths in errors."""

    extensions: ExtensionsBody | None = None


def decode_extensions(beside: Mapping[str, Any]) -> Extensions:
    """The extensions in what a subscription's JSON has beside Google's fields; what is absent has its default.

    Raises InvalidArgument that names the field.
    """
    body = convert_json({"extensions": beside.get("extensions")}, _Beside).extensions
    if body is None:
        return Extensions()
    return Extensions(
        one_per_ordering_key=body.one_per_ordering_key,
        push=_push_options(body.push),
        alerts=NO_ALERTS if body.alerts is None else _alerts(body.alerts),
        journal=NO_JOURNAL if body.journal is None else _journal(body.journal),
        dead_letter_expired=body.dead_letter_expired,
    )


def _alerts(body: AlertsBody) -> Alerts:
    age = body.age
    where = "extensions.alerts.age"
    return Alerts(age=None if age is None else parse_duration(age, where), backlog=body.backlog)


def _journal(body: JournalBody) -> Journal:
    where = "extensions.journal.retention"
    return Journal(
        mode=JournalMode(body.mode),
        sample=body.sample,
        retention=DEFAULT_RETENTION if body.retention is None else parse_duration(body.retention, where),
    )


def extensions_json(extensions: Extensions) -> Mapping[str, Any]:
    """What is not as by default; {} if all is."""
    push = _push_options_json(extensions.push)
    body: dict[str, Any] = {"onePerOrderingKey": True} if extensions.one_per_ordering_key else {}
    body |= {"deadLetterExpired": True} if extensions.dead_letter_expired else {}
    alerts = _alerts_json(extensions.alerts)
    body |= ({"push": push} if push else {}) | ({"alerts": alerts} if alerts else {})
    return body if extensions.journal == NO_JOURNAL else body | {"journal": _journal_json(extensions.journal)}


def _journal_json(journal: Journal) -> Mapping[str, Any]:
    """In full."""
    return {"mode": journal.mode, "sample": journal.sample, "retention": format_duration(journal.retention)}


def _alerts_json(alerts: Alerts) -> Mapping[str, Any]:
    age = {} if alerts.age is None else {"age": format_duration(alerts.age)}
    return age | ({} if alerts.backlog is None else {"backlog": alerts.backlog})


def _push_options(body: PushOptionsBody | None) -> PushOptions:
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
        urgent=body.urgent,
    )


def _given(body: msgspec.Struct, name: str, duration_field: str) -> dict[str, Any]:
    given = {field: value for field, value in msgspec.structs.asdict(body).items() if value is not None}
    if duration_field in given:
        where = f"extensions.push.{name}.{duration_field}"
        given[duration_field] = parse_duration(given[duration_field], where)
    return given


def _push_options_json(options: PushOptions) -> Mapping[str, Any]:
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
    return body | ({"urgent": True} if options.urgent else {})
