"""A message, as published and as delivered.

PubsubMessage and ReceivedMessage are the one shape used from the wire to the store: copying each message
into a second, identical value would cost as much as decoding it (docs/decisions/0002).
"""

import msgspec


class PubsubMessage(msgspec.Struct, rename="camel", omit_defaults=True):
    """google.pubsub.v1.PubsubMessage.  On input `message_id` and `publish_time` are ignored (Google's spec)."""

    data: bytes = b""
    attributes: dict[str, str] | msgspec.Raw = {}  # noqa: RUF012  (msgspec copies the default)
    message_id: str = ""
    publish_time: str = ""
    ordering_key: str = ""


class ReceivedMessage(msgspec.Struct, rename="camel", omit_defaults=True):
    """google.pubsub.v1.ReceivedMessage."""

    ack_id: str
    message: PubsubMessage
    delivery_attempt: int = 0
