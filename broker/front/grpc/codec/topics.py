"""Topics as google.pubsub.v1.Topic."""

from typing import Any

from google.protobuf import json_format

from broker.domain.refusals import refuse_unsupported
from broker.domain.topic import KEPT_FIELDS, UNSUPPORTED_FIELDS, Topic
from broker.front.grpc.codec.requests import from_timedelta, given_fields, to_timedelta
from broker.front.grpc.generated import messages


def topic_from(message: Any) -> Topic:
    """The topic that a call wants.  Raises InvalidArgument."""
    refuse_unsupported(given_fields(message), UNSUPPORTED_FIELDS)
    kept = messages.Topic(
        message_storage_policy=message.message_storage_policy
        if message.HasField("message_storage_policy")
        else None,
        kms_key_name=message.kms_key_name,
    )
    given = json_format.MessageToDict(kept)
    retention = message.message_retention_duration
    return Topic(
        name=message.name,
        labels=dict(message.labels),
        message_retention=to_timedelta(retention, "messageRetentionDuration")
        if message.HasField("message_retention_duration")
        else None,
        kept={name: given[name] for name in KEPT_FIELDS.values() if given.get(name)},
    )


def topic_message(topic: Topic) -> Any:
    message = messages.Topic(name=topic.name, labels=topic.labels)
    if topic.message_retention is not None:
        message.message_retention_duration.CopyFrom(from_timedelta(topic.message_retention))
    # What is kept may have been given over REST, in a newer client's words.
    json_format.ParseDict(dict(topic.kept), message, ignore_unknown_fields=True)
    return message
