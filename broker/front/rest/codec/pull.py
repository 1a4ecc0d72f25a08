"""Pull requests and responses."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from broker.domain.ack_id import attempt_name, make_ack_ids
from broker.domain.delivery import Delivery, StoredMessage
from broker.domain.errors import InvalidArgument
from broker.domain.message import PubsubMessage, ReceivedMessage
from broker.domain.message_id import SEQUENCES_PER_SHARD
from broker.domain.timestamps import format_timestamp
from broker.front.rest.codec.requests import Int32, decode_request


class PullRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    max_messages: Int32 = 0
    return_immediately: bool = False
    subscription: object = None  # in the path


_decoder = msgspec.json.Decoder(PullRequest)
_encode = msgspec.json.Encoder().encode


def decode_pull(body: bytes, query: Mapping[str, str]) -> PullRequest:
    """A pull request; the plain-path spelling gives its fields as query parameters (A12)."""
    request = decode_request(_decoder, body)
    fields = {field.encode_name: field.encode_name for field in msgspec.structs.fields(PullRequest)}
    fields |= {field.name: field.encode_name for field in msgspec.structs.fields(PullRequest)}
    given = {fields[key]: value for key, value in query.items() if key in fields}
    if not given:
        return request
    try:
        asked = msgspec.convert(given, PullRequest, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"Invalid query parameter: {error}") from error
    return PullRequest(
        max_messages=request.max_messages or asked.max_messages,
        return_immediately=request.return_immediately or asked.return_immediately,
    )


def encode_pull_response(
    subscription_id: int, deliveries: Sequence[Delivery], *, show_delivery_attempt: bool
) -> bytes:
    """The body of a pull response; {} without deliveries."""
    if not deliveries:
        return b"{}\n"
    received = [
        message
        for delivery in deliveries
        for message in _received(subscription_id, delivery, show_delivery_attempt)
    ]
    return _encode({"receivedMessages": received})


def _received(subscription_id: int, delivery: Delivery, show_delivery_attempt: bool) -> Iterator[ReceivedMessage]:
    ack_ids = make_ack_ids(attempt_name(subscription_id, delivery), range(len(delivery.messages)))
    first_id = delivery.shard_id * SEQUENCES_PER_SHARD
    attempt_number = delivery.attempt_number if show_delivery_attempt else 0
    last_time, printed_time = None, ""
    for ack_id, message in zip(ack_ids, delivery.messages, strict=True):
        if message.publish_time != last_time:  # a batch has one publish time
            last_time, printed_time = message.publish_time, format_timestamp(message.publish_time)
        yield ReceivedMessage(ack_id, _pubsub_message(first_id, message, printed_time), attempt_number)


def _pubsub_message(first_id: int, message: StoredMessage, publish_time: str) -> PubsubMessage:
    return PubsubMessage(
        message.data,
        None if message.attributes == "{}" else msgspec.Raw(message.attributes),
        str(first_id + message.seq),
        publish_time,
        message.ordering_key or "",
    )
