"""A message, as published and as delivered.

These structs are the only representation from the API to the database and back, because copying each message into
another value would cost as much as decoding it (docs/decisions/0002).  Those that are created by the thousand
contain no cycles, and are exempt from garbage collection (gc=False).
"""

import msgspec


class NewMessage(msgspec.Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    """google.pubsub.v1.PubsubMessage as a publisher sends it.

    `message_id` and `publish_time` are accepted and ignored: the service assigns them (Google's spec).
    """

    data: bytes = b""
    attributes: dict[str, str] = {}
    message_id: object = None
    publish_time: object = None
    ordering_key: str = ""


class PubsubMessage(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """google.pubsub.v1.PubsubMessage as the broker delivers it; `attributes` is JSON text or absent."""

    data: bytes = b""
    attributes: msgspec.Raw | None = None
    message_id: str = ""
    publish_time: str = ""
    ordering_key: str = ""


class ReceivedMessage(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """google.pubsub.v1.ReceivedMessage; `delivery_attempt` is 0 (absent) without a dead-letter policy."""

    ack_id: str
    message: PubsubMessage
    delivery_attempt: int = 0
