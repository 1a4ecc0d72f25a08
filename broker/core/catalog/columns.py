"""How the fields of topics and subscriptions are stored in columns.

`settings` has fields in the API's JSON, under the names that they have there.  A field has a column of its own if
statements need it in a type that JSON does not have, or an index on it; other statements read it from `settings`.

An interval of PostgreSQL ends with microseconds.  `exact_durations` has the text of each duration that has
nanoseconds, by the name of its column.  A text only counts as long as it agrees with its column, so that a
statement may change the column alone.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from broker.model import subscription, topic
from broker.model.api_json import fields_of, read_fields, to_json
from broker.model.durations import Duration, format_duration, parse_exact_duration
from broker.model.filter_changes import EarlierFilter, NewestFilter
from broker.model.push_config import SealedSecret
from broker.model.subscription import DeadLetterPolicy, Extensions, Subscription
from broker.model.topic import Topic
from broker.model.topic_extensions import NO_EXTENSIONS
from broker.model.transforms import Transforms

EXTENSIONS = "extensions"
SECRETS, FINGERPRINTS = "webhookSecrets", "webhookSecretFingerprints"

_encode_transforms = msgspec.json.Encoder().encode
_decode_transforms = msgspec.json.Decoder(Transforms).decode
Stored = TypeVar("Stored", timedelta, timedelta | None)

# The fields of the domain's types in `settings`, besides the fields without effect (model/kept.py).
TOPIC_FIELDS = ("labels", "extensions")
SUBSCRIPTION_FIELDS = (
    "ack_deadline_seconds",
    "labels",
    "enable_exactly_once_delivery",
    "retry_policy",
    "push_config",
    "extensions",
)


# --- topics -------------------------------------------------------------------------------------------------------


def topic_columns(stored: Topic) -> dict[str, Any]:
    """Returns the columns to store, without the number of shards: the table `shards` has that."""
    extensions = replace(stored.extensions, shards=None)
    return {
        "settings": _settings(replace(stored, extensions=extensions), TOPIC_FIELDS),
        "message_transforms": _transforms_text(stored.transforms),
        **_durations({"message_retention": stored.message_retention}),
    }


def read_topic_columns(row: Any, *, shards: int | None) -> dict[str, Any]:
    """Returns the fields of a Topic that these columns have."""
    found = _read(Topic, row.settings, topic.KEPT_FIELDS)
    found["message_retention"] = _exactly(row.message_retention, "message_retention", row.exact_durations)
    found["transforms"] = _read_transforms(row.message_transforms)
    if shards is not None:
        found["extensions"] = replace(found.get("extensions", NO_EXTENSIONS), shards=shards)
    return found


# --- subscriptions ------------------------------------------------------------------------------------------------


def subscription_columns(stored: Subscription) -> dict[str, Any]:
    """Returns the columns to store of the fields that a change may name."""
    policy = stored.dead_letter_policy
    return {
        "settings": _subscription_settings(stored),
        "message_transforms": _transforms_text(stored.transforms),
        "retain_acked_messages": stored.retain_acked_messages,
        "dead_letter_topic": policy and policy.dead_letter_topic,
        "max_delivery_attempts": policy and policy.max_delivery_attempts,
        **_durations({"message_retention": stored.message_retention, "expiration_ttl": stored.expiration_ttl}),
    }


def read_subscription_columns(row: Any) -> dict[str, Any]:
    """Returns the fields of a Subscription that these columns have, and the retention of its topic."""
    exact, policy_topic = row.exact_durations, row.dead_letter_topic
    return {
        **_read_subscription_settings(row.settings),
        "transforms": _read_transforms(row.message_transforms),
        "retain_acked_messages": row.retain_acked_messages,
        "dead_letter_policy": None
        if policy_topic is None
        else DeadLetterPolicy(dead_letter_topic=policy_topic, max_delivery_attempts=row.max_delivery_attempts),
        "message_retention": _exactly(row.message_retention, "message_retention", exact),
        "expiration_ttl": _exactly(row.expiration_ttl, "expiration_ttl", exact),
        "topic_message_retention": _exactly(
            row.topic_message_retention, "message_retention", row.topic_exact_durations
        ),
        "filter": row.filter,
        "filter_path": row.filter_path,
        "body_path": row.body_path,
        "filter_changed_at": row.filter_changed_at,
        "earlier_filters": decode_earlier(row.earlier_filters),
        "newest_filter": _newest_filter(row),
    }


def _subscription_settings(stored: Subscription) -> dict[str, Any]:
    """Returns the settings to store, with the fingerprints of encrypted secrets."""
    settings = _settings(stored, SUBSCRIPTION_FIELDS)
    secrets = stored.extensions.push.webhook_secrets or ()
    if push := settings[EXTENSIONS].get("push"):
        del settings[EXTENSIONS]["push"]
        said = {name: value for name, value in push.items() if name not in (SECRETS, FINGERPRINTS)}
        if said or secrets:
            settings[EXTENSIONS]["push"] = said | _stored_secrets(secrets)
    return settings


def _read_subscription_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
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


def encode_earlier(earlier: Sequence[EarlierFilter]) -> list[dict[str, str]] | None:
    """Returns the column `earlier_filters`."""
    return [{"filter": each.filter, "until": each.until.isoformat()} for each in earlier] or None


def decode_earlier(stored: Sequence[dict[str, str]] | None) -> tuple[EarlierFilter, ...]:
    """Returns the earlier filters from their column."""
    return tuple([EarlierFilter(each["filter"], datetime.fromisoformat(each["until"])) for each in stored or ()])


def _newest_filter(row: Any) -> NewestFilter | None:
    """Returns the filter that decides about messages from now on; None: it decides about all messages."""
    if row.earlier_filters is None:
        return None
    return NewestFilter(row.filter_changed_at, row.newest_filter_path, row.newest_body_path)


# --- both ---------------------------------------------------------------------------------------------------------


def _settings(resource: Topic | Subscription, names: Collection[str]) -> dict[str, Any]:
    kind: Any = type(resource)
    fields = fields_of(kind)
    given = ((fields[name], getattr(resource, name)) for name in names)
    return {field.json_name: to_json(value) for field, value in given if value is not None} | dict(resource.kept)


def _read(kind: Any, settings: Mapping[str, Any], kept: Mapping[str, str]) -> dict[str, Any]:
    found = read_fields(kind, settings)
    found["kept"] = {name: settings[name] for name in kept.values() if name in settings}
    return found


def _transforms_text(transforms: Transforms) -> str | None:
    return _encode_transforms(transforms).decode() if transforms else None


def _read_transforms(text: str | None) -> Transforms:
    return () if text is None else _decode_transforms(text)


def _durations(columns: Mapping[str, timedelta | None]) -> dict[str, Any]:
    """Returns the columns with `exact_durations`: the texts of those that have nanoseconds, or None."""
    exact = {
        name: format_duration(value)
        for name, value in columns.items()
        if isinstance(value, Duration) and value.nanoseconds
    }
    return {**columns, "exact_durations": exact or None}


def _exactly(stored: Stored, column: str, texts: Mapping[str, str] | None) -> Stored:
    """Returns the duration of a column as it was given."""
    if stored is None or not texts or column not in texts:
        return stored
    exact = parse_exact_duration(texts[column], column)
    return exact if exact.microseconds_alone == stored else stored
