"""The parts of a subscription that are stored as JSON."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from broker.domain.alerts import NO_ALERTS
from broker.domain.journal import NO_JOURNAL
from broker.domain.plain import STORED, from_plain, to_plain
from broker.domain.push_config import (
    GOOGLES_OPTIONS,
    OidcToken,
    PushConfig,
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
        options = to_plain(extensions.push, STORED)
        del options["copied_fingerprints"]
        stored["push"] = options | _stored_secrets(extensions.push.webhook_secrets or ())
    if extensions.alerts != NO_ALERTS:
        stored["alerts"] = to_plain(extensions.alerts, STORED)
    if extensions.journal != NO_JOURNAL:
        stored["journal"] = to_plain(extensions.journal, STORED)
    if extensions.dead_letter_expired:
        stored["dead_letter_expired"] = True
    return stored


def decode_extensions(stored: dict[str, Any]) -> Extensions:
    """What encode_extensions has made."""
    options = stored.get("push", {})
    extensions = from_plain(Extensions, {**stored, "push": {**options, "webhook_secrets": None}}, STORED)
    secrets = _webhook_secrets(options)
    return replace(extensions, push=replace(extensions.push, webhook_secrets=secrets)) if secrets else extensions


def _stored_secrets(secrets: Sequence[WebhookSecret]) -> dict[str, Any]:
    """Fingerprints stand beside secrets that are encrypted, each at its secret's place."""
    stored: dict[str, Any] = {"webhook_secrets": [s.text if isinstance(s, SealedSecret) else s for s in secrets]}
    fingerprints = [s.fingerprint if isinstance(s, SealedSecret) else "" for s in secrets]
    return stored | ({FINGERPRINTS: fingerprints} if any(fingerprints) else {})


def _webhook_secrets(stored: dict[str, Any]) -> tuple[WebhookSecret, ...]:
    secrets = stored.get("webhook_secrets", ())
    fingerprints = stored.get(FINGERPRINTS) or [""] * len(secrets)
    return tuple(
        SealedSecret(secret, shown) if shown else secret
        for secret, shown in zip(secrets, fingerprints, strict=True)
    )
