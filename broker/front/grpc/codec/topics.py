"""Topics as google.pubsub.v1.Topic."""

from typing import Any

from broker.domain.refusals import refuse_unsupported
from broker.domain.topic import KEPT_FIELDS, UNSUPPORTED_FIELDS, Topic
from broker.front.generated import messages
from broker.front.grpc.codec.requests import from_timedelta, given_fields, to_timedelta
from broker.front.kept_fields import kept_from_message, put_kept


def topic_from(message: Any) -> Topic:
    """The topic that a call wants.  Raises InvalidArgument."""
    refuse_unsupported(given_fields(message), UNSUPPORTED_FIELDS)
    retention = message.message_retention_duration
    return Topic(
        name=message.name,
        labels=dict(message.labels),
        message_retention=to_timedelta(retention, "messageRetentionDuration")
        if message.HasField("message_retention_duration")
        else None,
        kept=kept_from_message(message, KEPT_FIELDS),
    )


def topic_message(topic: Topic) -> Any:
    message = messages.Topic(name=topic.name, labels=topic.labels, state=topic.state or None)
    if topic.message_retention is not None:
        message.message_retention_duration.CopyFrom(from_timedelta(topic.message_retention))
    put_kept(message, topic.kept)
    return message
