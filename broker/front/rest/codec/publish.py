"""Publish requests and responses."""

from collections.abc import Sequence

import msgspec

from broker.domain.message import NewMessage
from broker.front.rest.codec.requests import decode_request


class PublishRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    messages: list[NewMessage] = []
    topic: object = None  # in the path; proto's own field, ignored here


_decoder = msgspec.json.Decoder(PublishRequest)
_encode = msgspec.json.Encoder().encode


def decode_publish(body: bytes) -> list[NewMessage]:
    """The messages of a publish request.  Raises InvalidArgument."""
    return decode_request(_decoder, body).messages


def encode_message_ids(ids: Sequence[str]) -> bytes:
    return _encode({"messageIds": ids})
