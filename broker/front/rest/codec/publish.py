"""Publish requests and responses."""

import re
from collections.abc import Sequence

import msgspec

from broker.domain.errors import InvalidArgument
from broker.domain.message import NewMessage
from broker.domain.publish_limits import MAX_MESSAGES
from broker.front.rest.codec.requests import decode_request


class PublishRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    messages: list[NewMessage] = []
    topic: object = None  # in the path; proto's own field, ignored here


_decoder = msgspec.json.Decoder(PublishRequest)
_encode = msgspec.json.Encoder().encode


# Braces of a body that is not looked at before it is decoded.  That of an ordinary publish has two a message.
_USUAL_BRACES = 100_000
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]', re.DOTALL)


def decode_publish(body: bytes) -> list[NewMessage]:
    """The messages of a publish request.  Raises InvalidArgument."""
    if len(body) > 2 * _USUAL_BRACES and body.count(b"{") > _USUAL_BRACES:
        _check_count(body)
    return decode_request(_decoder, body).messages


def _check_count(body: bytes) -> None:
    """Refuse a body of far too many messages before they are made: 10 MB of {},{},… would become 500."""
    depth = count = 0
    for token in _TOKEN.finditer(body):
        character = body[token.start()]
        if character in b"{[":
            count += depth == 2  # {"messages": [{
            depth += 1
        elif character in b"}]":
            depth -= 1
        if count > MAX_MESSAGES:
            raise InvalidArgument(
                f"The value for message_count is too large. You passed more than {MAX_MESSAGES} in the request, "
                f"but the maximum value is {MAX_MESSAGES}."
            )


def encode_message_ids(ids: Sequence[str]) -> bytes:
    return _encode({"messageIds": ids})
