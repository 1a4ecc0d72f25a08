"""Subscriber.Pull over gRPC."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from broker.api.generated.messages import PullRequest, PullResponse
from broker.api.google.requests import resource_name
from broker.api.google.times import from_datetime
from broker.api.grpc.call import UnaryCall, allow, in_steps
from broker.api.grpc.requests import decode_request
from broker.api.peer import host_of
from broker.api.steps import Slice, Steps, cut, is_long
from broker.core.pulling.pull_service import PullService
from broker.model.ack_id import ack_ids_of
from broker.model.delivery import MAX_GRPC_RESPONSE_BYTES, Delivery
from broker.model.message_id import SEQUENCES_PER_SHARD
from broker.model.subscription import Subscription


async def pull(service: PullService, call: UnaryCall, body: bytes) -> bytes:
    request = decode_request(PullRequest, body)
    name = resource_name(request.subscription, "subscriptions")
    await allow(call, name)
    subscription, deliveries = await service.pull(
        name,
        max_messages=request.max_messages,
        return_immediately=request.return_immediately,
        max_bytes=MAX_GRPC_RESPONSE_BYTES,
        seconds_left=call.seconds_left(),
        principal=call.caller.member,
        address=host_of(call.peer()),
        hung_up=call.hung_up,
    )
    response = PullResponse()
    if deliveries:
        call.unless_sent(partial(service.release, subscription, deliveries))
        if is_long(deliveries):
            await in_steps(call, name, add_many_received(response, subscription, deliveries))
        else:
            add_received(response, subscription, deliveries)
    return response.SerializeToString()  # type: ignore[no-any-return]


_attributes = msgspec.json.Decoder(dict[str, str]).decode


def add_received(response: Any, subscription: Subscription, deliveries: Sequence[Delivery]) -> None:
    """Add all messages of the deliveries to a response's `received_messages`."""
    _add(response, subscription, [(delivery, 0, len(delivery.messages)) for delivery in deliveries])


def add_many_received(response: Any, subscription: Subscription, deliveries: Sequence[Delivery]) -> Steps[None]:
    """The same, of many messages or bytes."""
    for cost, part in cut(deliveries):
        yield cost
        _add(response, subscription, part)


def _add(response: Any, subscription: Subscription, part: Slice) -> None:
    """Adds messages field by field in their place: to create each by itself and copy it takes twice as long."""
    add = response.received_messages.add
    last_time: datetime | None = None
    seconds = nanos = 0
    for delivery, start, end in part:
        ack_ids = ack_ids_of(subscription.subscription_id, delivery, start, end)
        first_id = delivery.shard_id * SEQUENCES_PER_SHARD
        attempt_number = delivery.attempt_number if subscription.shows_delivery_attempts else 0
        for ack_id, message in zip(ack_ids, delivery.messages[start:end], strict=True):
            if message.publish_time is not last_time:  # a batch has one publish time
                last_time = message.publish_time
                time = from_datetime(last_time)
                seconds, nanos = time.seconds, time.nanos
            received = add()
            received.ack_id = ack_id
            if attempt_number:
                received.delivery_attempt = attempt_number
            body = received.message
            body.data = message.data
            body.message_id = str(first_id + (message.seq if message.id_seq is None else message.id_seq))
            body.publish_time.seconds = seconds
            body.publish_time.nanos = nanos
            if message.attributes != "{}":
                body.attributes.update(_attributes(message.attributes))
            if message.ordering_key:
                body.ordering_key = message.ordering_key
