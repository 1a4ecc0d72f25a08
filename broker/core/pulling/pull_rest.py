"""Subscriber.Pull over REST."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import cast

import msgspec

from broker.api.peer import host_of
from broker.api.rest.call import Call
from broker.api.rest.codec.requests import decode_request
from broker.api.steps import Steps, cut, is_long
from broker.core.pulling.pull_service import PullService
from broker.model.ack_id import ack_ids_of
from broker.model.api_json import Int32
from broker.model.delivery import MAX_MESSAGES_PER_ATTEMPT, Delivery
from broker.model.errors import InvalidArgument
from broker.model.message import PubsubMessage, ReceivedMessage
from broker.model.message_id import SEQUENCES_PER_SHARD
from broker.model.subscription import Subscription
from broker.model.timestamps import timestamp_formatter


async def pull(service: PullService, call: Call) -> bytes:
    request = decode_pull(call.body, call.query)
    subscription, deliveries = await service.pull(
        call.name,
        max_messages=request.max_messages,
        return_immediately=request.return_immediately,
        seconds_left=call.seconds_left(),
        principal=call.caller.member,
        address=host_of(call.exchange.peer),
        hung_up=call.exchange.hung_up,
    )
    if is_long(deliveries):
        answer = await call.in_steps(encode_large_pull_response(subscription, deliveries))
    else:
        answer = encode_pull_response(subscription, deliveries)
    if deliveries and call.exchange.gone:
        await service.release(subscription, deliveries)
    return answer


# --- JSON ---------------------------------------------------------------------------------------------------


class PullRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    max_messages: Int32 = 0
    return_immediately: bool = False
    subscription: object = None  # in the path


_FIELDS = msgspec.structs.fields(PullRequest)
_QUERY_NAMES = {name: field.encode_name for field in _FIELDS for name in (field.encode_name, field.name)}
_decoder = msgspec.json.Decoder(PullRequest)
_encoder = msgspec.json.Encoder()
_encode, _encode_into = _encoder.encode, _encoder.encode_into
_COMMA = ord(",")


def decode_pull(body: bytes, query: Mapping[str, str]) -> PullRequest:
    """A pull request; the plain-path spelling gives its fields as query parameters (A12)."""
    request = decode_request(_decoder, body)
    given = {_QUERY_NAMES[key]: value for key, value in query.items() if key in _QUERY_NAMES}
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


def encode_pull_response(subscription: Subscription, deliveries: Sequence[Delivery]) -> bytes:
    """The body of a pull response; {} without deliveries."""
    if not deliveries:
        return b"{}\n"
    received: list[ReceivedMessage] = []
    time_text = timestamp_formatter()
    for delivery in deliveries:
        received += _received(subscription, delivery, time_text)
    return _encode({"receivedMessages": received})


def encode_large_pull_response(subscription: Subscription, deliveries: Sequence[Delivery]) -> Steps[bytes]:
    """The same, of many messages or bytes: into one buffer, for copying what is large takes long."""
    body = bytearray(b'{"receivedMessages":')
    time_text = timestamp_formatter()
    for cost, part in cut(deliveries):
        yield cost
        received: list[ReceivedMessage] = []
        for delivery, start, end in part:
            received += _received(subscription, delivery, time_text, start, end)
        at = len(body)
        if body.endswith(b"]"):
            at -= 1
            _encode_into(received, body, at)
            body[at] = _COMMA  # replaces both brackets
        else:
            _encode_into(received, body, at)
    body += b"}"
    return cast(bytes, body)  # the result is only written


def _received(
    subscription: Subscription,
    delivery: Delivery,
    time_text: Callable[[datetime], str],
    start: int = 0,
    end: int = MAX_MESSAGES_PER_ATTEMPT,
) -> list[ReceivedMessage]:
    """The delivery's messages, or some of them; `time_text` formats their times."""
    ack_ids = ack_ids_of(subscription.subscription_id, delivery, start, end)
    first_id = delivery.shard_id * SEQUENCES_PER_SHARD
    attempt_number = delivery.attempt_number if subscription.shows_delivery_attempts else 0
    last: datetime | None = None
    text = ""
    # One expression with no calls for a message but those of the two structs, because a third of a pull's time is
    # spent here.  Messages that were published together share the same time object.
    return [
        ReceivedMessage(
            ack_id,
            PubsubMessage(
                message.data,
                None if message.attributes == "{}" else msgspec.Raw(message.attributes),
                str(first_id + (message.seq if message.id_seq is None else message.id_seq)),
                text if (time := message.publish_time) is last else (text := time_text(last := time)),
                message.ordering_key or "",
            ),
            attempt_number,
        )
        for ack_id, message in zip(ack_ids, delivery.messages[start:end], strict=True)
    ]
