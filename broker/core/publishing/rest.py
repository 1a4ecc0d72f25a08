"""Publisher.Publish over REST."""

from collections.abc import Sequence

import msgspec

from broker.api.rest.call import Call
from broker.api.rest.codec.long_texts import Texts, without_long_texts
from broker.api.rest.codec.requests import decode_request, has_more_objects
from broker.api.steps import LONG_BODY, Steps
from broker.core.publishing.service import PublishService
from broker.model.errors import BrokerError, InvalidArgument
from broker.model.message import NewMessage
from broker.model.publish_limits import MAX_MESSAGES

_WORTH_A_CHECK = 4096  # bytes; decoding smaller bodies is faster than checking them first


async def publish(service: PublishService, call: Call) -> bytes:
    try:
        if len(call.body) > _WORTH_A_CHECK:
            await service.check_capacity(call.name, call.caller.member)
        if len(call.body) < LONG_BODY:
            messages = decode_publish(call.body)
        else:
            messages = await call.in_steps(decode_large_publish(call.body))
        traceparent = call.exchange.head.header(b"traceparent") if service.is_traced else b""
        published = await service.publish(call.name, messages, call.caller.member, traceparent)
    except BrokerError as error:
        service.refused(call.name, error)
        raise
    return encode_published(published.ids, published.repeats)


# --- JSON ---------------------------------------------------------------------------------------------------


class PublishRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    messages: list[NewMessage] = []
    topic: object = None  # in the path; proto's own field, ignored here


MAX_TOKENS = 500_000  # 1,000 messages with 100 attributes each have 310,000
_MAX_OBJECTS = 4 * MAX_MESSAGES  # twice the messages and their attributes; fewer objects are counted one by one
_decoder = msgspec.json.Decoder(PublishRequest)
_encode = msgspec.json.Encoder().encode


def decode_publish(body: bytes) -> list[NewMessage]:
    """The messages of a publish request.  Raises InvalidArgument."""
    check_objects(body)
    return decode_request(_decoder, body, max_tokens=MAX_TOKENS).messages


def check_objects(body: bytes) -> None:
    """Raises InvalidArgument for a body of more objects than the messages of a request can be; none is made."""
    if has_more_objects(body, _MAX_OBJECTS):
        raise InvalidArgument(
            f"The request has more than {_MAX_OBJECTS} JSON objects, which are more than "
            f"{MAX_MESSAGES} messages with attributes, the maximum."
        )


def decode_large_publish(body: bytes) -> Steps[list[NewMessage]]:
    """The same, of a large body: its long texts are decoded piece by piece.  Raises as that does."""
    rest, texts = yield from without_long_texts(body)
    if not texts:
        yield len(body)
        return decode_publish(body)
    yield len(rest)
    try:
        messages = decode_publish(rest)
        _put_in(messages, texts)
    except (InvalidArgument, LookupError):  # a long text is in a wrong place; decoding the whole body shows where
        yield len(body)
        return decode_publish(body)
    return messages


def _put_in(messages: Sequence[NewMessage], texts: Texts) -> None:
    """Raises KeyError unless all the texts are data."""
    for message in messages:
        found = texts.pop(message.data, None)
        if found is not None:
            message.data = found
    if texts:
        raise KeyError


def encode_published(ids: Sequence[str], repeats: Sequence[int]) -> bytes:
    """`repeats`, the indexes of messages that were not stored, are an extension."""
    return _encode({"messageIds": ids, "repeats": repeats} if repeats else {"messageIds": ids})
