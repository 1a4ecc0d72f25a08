"""The fields of a resource's JSON that Google's message does not have: extensions, and output only fields."""

from collections.abc import Mapping
from dataclasses import replace
from functools import singledispatch
from typing import Any

import msgspec

from broker.api.rest.codec.requests import convert_json
from broker.core.backlog.seeking.position_rest import replay_json
from broker.core.backlog.seeking.replay import Replay
from broker.core.backlog.seeking.snapshot import Snapshot
from broker.core.resources.freeze_rest import freeze_json
from broker.core.resources.pause_rest import pause_json
from broker.features.schemas.schema import JSON, Schema
from broker.model.api_json import body_type, from_json, to_json
from broker.model.push_config import fingerprint
from broker.model.schema_settings import Compatibility, SchemaOptions
from broker.model.subscription import NO_EXTENSIONS, Extensions, Subscription
from broker.model.timestamps import format_timestamp
from broker.model.topic import Topic

# It includes the field itself, so that paths in errors begin with its name.
_SUBSCRIPTION_FIELDS = msgspec.defstruct("SubscriptionFields", [("extensions", body_type(Extensions) | None, None)])


class _SchemaFields(msgspec.Struct):
    type: str = ""
    compatibility: Compatibility | None = None


def decode_extensions(beside: Mapping[str, Any]) -> Extensions:
    """Returns the extensions that the fields of a subscription beyond Google's give; absent ones are defaults.

    Raises InvalidArgument that names the field.
    """
    given = convert_json({"extensions": beside.get("extensions")}, _SUBSCRIPTION_FIELDS)
    body = msgspec.to_builtins(given)["extensions"]
    return NO_EXTENSIONS if body is None else from_json(Extensions, body, "extensions")


def _extensions_json(extensions: Extensions) -> Mapping[str, Any]:
    """Returns the extensions that differ from their defaults; of secrets only the fingerprints."""
    if extensions == NO_EXTENSIONS:
        return {}
    push = extensions.push
    rate = push.messages_per_second
    shown = replace(
        push,
        messages_per_second=int(rate) if rate is not None and rate.is_integer() else rate,
        webhook_secrets=None,
        webhook_secret_fingerprints=tuple(map(fingerprint, push.webhook_secrets or ())),
    )
    printed: Mapping[str, Any] = to_json(replace(extensions, push=shown))
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
