"""The parts of a subscription that are stored as JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from broker.domain.alerts import NO_ALERTS, Alerts
from broker.domain.journal import NO_JOURNAL, Journal, JournalMode
from broker.domain.push_config import (
    GOOGLES_OPTIONS,
    CircuitBreaker,
    Digest,
    OidcToken,
    PushConfig,
    PushOptions,
    SealedSecret,
    WebhookSecret,
)
from broker.domain.subscription import Extensions

FINGERPRINTS = "webhook_secret_fingerprints"


def encode_push_config(config: PushConfig) -> dict[str, Any]:
    """{} for a pull subscription without anything to keep."""
    return {name: value for name, value in asdict(config).items() if value}


def decode_push_config(stored: dict[str, Any]) -> PushConfig:
    """What encode_push_config has made."""
    token = stored.get("oidc_token")
    return PushConfig(**{**stored, "oidc_token": OidcToken(**token) if token else None})


def encode_extensions(extensions: Extensions) -> dict[str, Any]:
    """Durations are seconds; what is as by default is left out."""
    stored: dict[str, Any] = {}
    if extensions.one_per_ordering_key:
        stored["one_per_ordering_key"] = True
    if extensions.push != GOOGLES_OPTIONS:
        options = _in_seconds(asdict(extensions.push))
        del options["copied_fingerprints"]
        stored["push"] = options | _stored_secrets(extensions.push.webhook_secrets or ())
    if extensions.alerts != NO_ALERTS:
        stored["alerts"] = _in_seconds(asdict(extensions.alerts))
    if extensions.journal != NO_JOURNAL:
        stored["journal"] = _in_seconds(asdict(extensions.journal))
    if extensions.dead_letter_expired:
        stored["dead_letter_expired"] = True
    return stored


def decode_extensions(stored: dict[str, Any]) -> Extensions:
    """What encode_extensions has made."""
    push = _push_options(stored["push"]) if "push" in stored else GOOGLES_OPTIONS
    alerts = _alerts(stored["alerts"]) if "alerts" in stored else NO_ALERTS
    return Extensions(
        one_per_ordering_key=stored.get("one_per_ordering_key", False),
        push=push,
        alerts=alerts,
        journal=_journal(stored["journal"]) if "journal" in stored else NO_JOURNAL,
        dead_letter_expired=stored.get("dead_letter_expired", False),
    )


def _journal(stored: dict[str, Any]) -> Journal:
    mode = stored["mode"]
    return Journal(
        mode=None if mode is None else JournalMode(mode),
        sample=stored["sample"],
        retention=timedelta(seconds=stored["retention"]),
    )


def _alerts(stored: dict[str, Any]) -> Alerts:
    age = stored["age"]
    return Alerts(age=None if age is None else timedelta(seconds=age), backlog=stored["backlog"])


def _push_options(stored: dict[str, Any]) -> PushOptions:
    digest, breaker = stored["digest"], stored["circuit_breaker"]
    return PushOptions(
        messages_per_second=stored["messages_per_second"],
        max_outstanding_requests=stored["max_outstanding_requests"],
        digest=digest and Digest(**{**digest, "max_delay": timedelta(seconds=digest["max_delay"])}),
        webhook_secrets=_webhook_secrets(stored) or None,
        urgent=stored["urgent"],
        circuit_breaker=CircuitBreaker(
            failure_threshold=breaker["failure_threshold"],
            open_duration=timedelta(seconds=breaker["open_duration"]),
        ),
    )


def _stored_secrets(secrets: Sequence[WebhookSecret]) -> dict[str, Any]:
    """Fingerprints stand beside secrets that are encrypted, each at its secret's place."""
    stored: dict[str, Any] = {"webhook_secrets": [s.text if isinstance(s, SealedSecret) else s for s in secrets]}
    fingerprints = [s.fingerprint if isinstance(s, SealedSecret) else "" for s in secrets]
    return stored | ({FINGERPRINTS: fingerprints} if any(fingerprints) else {})


def _webhook_secrets(stored: dict[str, Any]) -> tuple[WebhookSecret, ...]:
    secrets = stored["webhook_secrets"]
    fingerprints = stored.get(FINGERPRINTS) or [""] * len(secrets)
    return tuple(
        SealedSecret(secret, shown) if shown else secret
        for secret, shown in zip(secrets, fingerprints, strict=True)
    )


def _in_seconds(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _in_seconds(item) for name, item in value.items()}
    return value.total_seconds() if isinstance(value, timedelta) else value
