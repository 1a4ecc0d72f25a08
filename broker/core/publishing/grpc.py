"""Publisher.Publish over gRPC."""

from typing import Any

from broker.api.generated.messages import PublishRequest, PublishResponse
from broker.api.google.requests import resource_name
from broker.api.grpc.call import UnaryCall, allow, turn_to_read
from broker.api.grpc.requests import decode_request
from broker.api.steps import LONG_BODY
from broker.core.publishing.service import PublishService
from broker.model.errors import BrokerError
from broker.model.message import NewMessage


async def publish(service: PublishService, call: UnaryCall, body: bytes) -> bytes:
    request = decode_request(PublishRequest, body)
    topic = resource_name(request.topic, "topics")
    await allow(call, topic)
    try:
        await service.check_capacity(topic, call.caller.member)
        if len(body) >= LONG_BODY:
            await turn_to_read(call, topic, body)
        traceparent = call.metadata.get(b"traceparent", b"")
        published = await service.publish(topic, new_messages(request), call.caller.member, traceparent)
    except BrokerError as error:
        service.refused(topic, error)
        raise
    return PublishResponse(message_ids=published.ids).SerializeToString()  # type: ignore[no-any-return]


def new_messages(request: Any) -> list[NewMessage]:
    """The messages of a google.pubsub.v1.PublishRequest."""
    return [
        NewMessage(message.data, dict(message.attributes), None, None, message.ordering_key)
        for message in request.messages
    ]
