"""The column `settings` of topics and subscriptions: their fields in the API's JSON, under the names that they have
there.

A field has a column of its own if statements need it in a type that JSON does not have, or an index on it; others
read it from `settings`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from broker.domain import subscription, topic
from broker.domain.api_json import fields_of, read_fields, to_json
from broker.domain.push_config import SealedSecret
from broker.domain.subscription import Extensions, Subscription
from broker.domain.topic import Topic
from broker.domain.topic_extensions import NO_EXTENSIONS

EXTENSIONS = "extensions"
SECRETS, FINGERPRINTS = "webhookSecrets", "webhookSecretFingerprints"

# The fields of the domain's types that `settings` has, besides the fields without effect (domain/kept.py).
TOPIC_FIELDS = ("labels", "extensions")
SUBSCRIPTION_FIELDS = (
    "ack_deadline_seconds",
    "labels",
    "enable_exactly_once_delivery",
    "retry_policy",
    "push_config",
    "extensions",
)


def topic_settings(stored: Topic) -> dict[str, Any]:
    """Returns the settings to store, without the number of shards: the table `shards` has that."""
    extensions = replace(stored.extensions, shards=None)
    return _settings(replace(stored, extensions=extensions), TOPIC_FIELDS)


def read_topic_settings(settings: Mapping[str, Any], *, shards: int | None) -> dict[str, Any]:
    """Returns the fields of a Topic that `settings` has."""
    found = _read(Topic, settings, topic.KEPT_FIELDS)
    if shards is not None:
        found["extensions"] = replace(found.get("extensions", NO_EXTENSIONS), shards=shards)
    return found


def subscription_settings(stored: Subscription) -> dict[str, Any]:
    """Returns the settings to store, with the fingerprints of encrypted secrets."""
    settings = _settings(stored, SUBSCRIPTION_FIELDS)
    secrets = stored.extensions.push.webhook_secrets or ()
    if push := settings[EXTENSIONS].get("push"):
        del settings[EXTENSIONS]["push"]
        said = {name: value for name, value in push.items() if name not in (SECRETS, FINGERPRINTS)}
        if said or secrets:
            settings[EXTENSIONS]["push"] = said | _stored_secrets(secrets)
    return settings


def read_subscription_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a Subscription that `settings` has."""
    found = _read(Subscription, settings, subscription.KEPT_FIELDS)
    extensions: Extensions | None = found.get("extensions")
    if extensions is not None and (secrets := extensions.push.webhook_secrets):
        prints = extensions.push.webhook_secret_fingerprints or [""] * len(secrets)
        read = tuple(SealedSecret.of(*pair) if pair[1] else pair[0] for pair in zip(secrets, prints, strict=True))
        push = replace(extensions.push, webhook_secrets=read, webhook_secret_fingerprints=())
        found["extensions"] = replace(extensions, push=push)
    return found


def _stored_secrets(secrets: Sequence[str]) -> dict[str, Any]:
    """Returns the secrets, and a list of their fingerprints, "" for each that is not encrypted."""
    if not secrets:
        return {}
    prints = [secret.fingerprint if isinstance(secret, SealedSecret) else "" for secret in secrets]
    return {SECRETS: list(secrets)} | ({FINGERPRINTS: prints} if any(prints) else {})


def _settings(resource: Topic | Subscription, names: Collection[str]) -> dict[str, Any]:
    kind: Any = type(resource)
    fields = fields_of(kind)
    given = ((fields[name], getattr(resource, name)) for name in names)
    return {field.json_name: to_json(value) for field, value in given if value is not None} | dict(resource.kept)


def _read(kind: Any, settings: Mapping[str, Any], kept: Mapping[str, str]) -> dict[str, Any]:
    found = read_fields(kind, settings)
    found["kept"] = {name: settings[name] for name in kept.values() if name in settings}
    return found
