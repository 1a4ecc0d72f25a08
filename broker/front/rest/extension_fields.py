"""The fields of a resource's JSON that Google's message does not have: extensions, and output only fields."""

from collections.abc import Mapping
from dataclasses import replace
from functools import singledispatch
from typing import Any, Literal

import msgspec

from broker.domain.journal import Journal
from broker.domain.plain import from_plain, in_api, to_plain
from broker.domain.push_config import CircuitBreaker, Digest, fingerprint
from broker.domain.replay import Replay
from broker.domain.schema import JSON, Compatibility, Schema, SchemaOptions
from broker.domain.snapshot import Snapshot
from broker.domain.subscription import NO_EXTENSIONS, Extensions, Subscription
from broker.domain.timestamps import format_timestamp
from broker.domain.topic import Topic
from broker.front.rest.codec.requests import Int32, convert_json
from broker.front.rest.handlers.freezes import freeze_json
from broker.front.rest.handlers.pauses import pause_json
from broker.front.rest.handlers.positions import replay_json

_FORM = in_api(
    in_full=(Digest, CircuitBreaker, Journal), renamed={"copied_fingerprints": "webhookSecretFingerprints"}
)


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


class _SubscriptionFields(msgspec.Struct):
    """Of a subscription, for the paths in errors."""

    extensions: ExtensionsBody | None = None


class _SchemaFields(msgspec.Struct):
    type: str = ""
    compatibility: Compatibility | None = None


def decode_extensions(beside: Mapping[str, Any]) -> Extensions:
    """Returns the extensions that the fields of a subscription beyond Google's give; absent ones are defaults.

    Raises InvalidArgument that names the field.
    """
    body = convert_json({"extensions": beside.get("extensions")}, _SubscriptionFields).extensions
    return NO_EXTENSIONS if body is None else from_plain(Extensions, msgspec.to_builtins(body), _FORM, "extensions")


def _extensions_json(extensions: Extensions) -> Mapping[str, Any]:
    """The extensions that differ from their defaults.

    A journal, a digest and a circuit breaker are printed in full; of secrets only the fingerprints.
    """
    if extensions == NO_EXTENSIONS:
        return {}
    push = extensions.push
    rate = push.messages_per_second
    shown = replace(
        push,
        messages_per_second=int(rate) if rate is not None and rate.is_integer() else rate,
        webhook_secrets=None,
        copied_fingerprints=tuple(map(fingerprint, push.webhook_secrets or ())),
    )
    printed: Mapping[str, Any] = to_plain(replace(extensions, push=shown), _FORM)
    return printed


def decode_schema_options(beside: Mapping[str, Any]) -> SchemaOptions:
    """Raises InvalidArgument that names the field."""
    body = convert_json(
        {name: beside[name] for name in _SchemaFields.__struct_fields__ if name in beside}, _SchemaFields
    )
    return SchemaOptions(type=body.type, compatibility=body.compatibility)


def _schema_json(schema: Schema) -> Mapping[str, Any]:
    """Returns the extensions that differ from their defaults, which are Google's behaviour."""
    kind = {"type": JSON} if schema.type == JSON else {}
    if schema.compatibility in (None, Compatibility.FULL_TRANSITIVE):
        return kind
    return kind | {"compatibility": schema.compatibility}


@singledispatch
def beside(shown: object) -> Mapping[str, Any]:
    """Returns the fields of a value's JSON that Google's message does not have."""
    return {}


@beside.register
def _(shown: Topic) -> Mapping[str, Any]:
    return {**shown.kept, **({} if shown.freeze is None else {"frozen": freeze_json(shown.freeze)})}


@beside.register
def _(shown: Subscription) -> Mapping[str, Any]:
    extensions = _extensions_json(shown.extensions)
    pause = {} if shown.pause is None else {"pause": pause_json(shown.pause)}
    return {**shown.kept, **({"extensions": extensions} if extensions else {}), **pause}


@beside.register
def _(shown: Schema) -> Mapping[str, Any]:
    return _schema_json(shown)


@beside.register
def _(shown: Snapshot) -> Mapping[str, Any]:
    return {"expireTime": format_timestamp(shown.expire_time)}  # protobuf leaves out milliseconds that are 0


@beside.register
def _(shown: Replay) -> Mapping[str, Any]:
    return replay_json(shown)
