"""Publisher.Publish."""

from broker.domain.errors import BrokerError
from broker.front.generated.messages import PublishRequest, PublishResponse
from broker.front.grpc.call import UnaryCall, allow
from broker.front.grpc.codec.publish import new_messages
from broker.front.grpc.codec.requests import decode_request
from broker.front.resources.requests import resource_name


async def publish(call: UnaryCall, body: bytes) -> bytes:
    request = decode_request(PublishRequest, body)
    topic = resource_name(request.topic, "topics")
    await allow(call, "Publisher.Publish", topic)
    service = call.services.publish
    try:
        await service.check_room(topic, call.caller.member)
        traceparent = call.metadata.get(b"traceparent", b"")
        ids = await service.publish(topic, new_messages(request), call.caller.member, traceparent)
    except BrokerError as error:
        service.refused(topic, error)
        raise
    return PublishResponse(message_ids=ids).SerializeToString()  # type: ignore[no-any-return]
