"""Topics on the wire."""

from typing import Any

import msgspec

from broker.domain.durations import format_duration
from broker.domain.field_mask import parse_field_mask
from broker.domain.refusals import refuse_unsupported
from broker.domain.topic import KEPT_FIELDS, UNSUPPORTED_FIELDS, Topic
from broker.front.kept_fields import kept_from_json
from broker.front.rest.codec.requests import decode_request
from broker.front.rest.codec.resources import given_fields, require_same_name
from broker.front.rest.codec.scalars import parse_duration


class TopicBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """google.pubsub.v1.Topic; `state` and `satisfies_pzs` are output only and ignored."""

    name: str = ""
    labels: dict[str, str] = {}
    message_storage_policy: dict[str, Any] = {}
    kms_key_name: str = ""
    message_retention_duration: str = ""
    schema_settings: dict[str, Any] = {}
    ingestion_data_source_settings: dict[str, Any] = {}
    message_transforms: list[dict[str, Any]] = []
    tags: dict[str, str] = {}
    state: object = None
    satisfies_pzs: object = None


class UpdateTopicBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    topic: TopicBody = msgspec.field(default_factory=TopicBody)
    update_mask: str = ""


_topic = msgspec.json.Decoder(TopicBody)
_update = msgspec.json.Decoder(UpdateTopicBody)


def decode_topic(body: bytes, name: str) -> Topic:
    """The topic that a create call wants.  Raises InvalidArgument."""
    return _from_body(decode_request(_topic, body), name)


def decode_update_topic(body: bytes, name: str, query_mask: str | None) -> tuple[Topic, list[str]]:
    """The wanted topic and the mask's paths; the mask may be a query parameter instead (Terraform)."""
    request = decode_request(_update, body)
    return _from_body(request.topic, name), parse_field_mask(request.update_mask or query_mask or "")


def _from_body(body: TopicBody, name: str) -> Topic:
    refuse_unsupported(given_fields(body), UNSUPPORTED_FIELDS)
    require_same_name(body.name, name)
    kept = {json_name: getattr(body, path) for path, json_name in KEPT_FIELDS.items() if getattr(body, path)}
    retention = body.message_retention_duration
    return Topic(
        name=name,
        labels=body.labels,
        message_retention=parse_duration(retention, "messageRetentionDuration") if retention else None,
        kept=kept_from_json("Topic", kept),
    )


def topic_json(topic: Topic) -> dict[str, Any]:
    """google.pubsub.v1.Topic in JSON; defaults are left out."""
    body: dict[str, Any] = {"name": topic.name}
    if topic.labels:
        body["labels"] = topic.labels
    if topic.message_retention is not None:
        body["messageRetentionDuration"] = format_duration(topic.message_retention)
    if topic.state:
        body["state"] = topic.state
    return body | dict(topic.kept)
