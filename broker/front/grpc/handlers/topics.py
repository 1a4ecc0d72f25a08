"""The Publisher service's topics."""

from broker.front.generated import messages
from broker.front.grpc.call import UnaryCall
from broker.front.grpc.codec.requests import decode_request, mask_paths, page_of, project_name, resource_name
from broker.front.grpc.codec.topics import topic_from, topic_message


async def create_topic(call: UnaryCall, body: bytes) -> bytes:
    topic = await call.services.topics.create_topic(topic_from(decode_request(messages.Topic, body)))
    return topic_message(topic).SerializeToString()  # type: ignore[no-any-return]


async def get_topic(call: UnaryCall, body: bytes) -> bytes:
    request = decode_request(messages.GetTopicRequest, body)
    topic = await call.services.topics.get_topic(resource_name(request.topic, "topics"))
    return topic_message(topic).SerializeToString()  # type: ignore[no-any-return]


async def update_topic(call: UnaryCall, body: bytes) -> bytes:
    request = decode_request(messages.UpdateTopicRequest, body)
    resource_name(request.topic.name, "topics")
    topic = await call.services.topics.update_topic(topic_from(request.topic), mask_paths(request))
    return topic_message(topic).SerializeToString()  # type: ignore[no-any-return]


async def delete_topic(call: UnaryCall, body: bytes) -> bytes:
    request = decode_request(messages.DeleteTopicRequest, body)
    await call.services.topics.delete_topic(resource_name(request.topic, "topics"))
    return b""


async def list_topics(call: UnaryCall, body: bytes) -> bytes:
    request = decode_request(messages.ListTopicsRequest, body)
    topics, token = await call.services.topics.list_topics(project_name(request.project), page_of(request))
    response = messages.ListTopicsResponse(topics=map(topic_message, topics), next_page_token=token)
    return response.SerializeToString()  # type: ignore[no-any-return]


async def list_topic_subscriptions(call: UnaryCall, body: bytes) -> bytes:
    request = decode_request(messages.ListTopicSubscriptionsRequest, body)
    topic = resource_name(request.topic, "topics")
    names, token = await call.services.topics.list_topic_subscriptions(topic, page_of(request))
    response = messages.ListTopicSubscriptionsResponse(subscriptions=names, next_page_token=token)
    return response.SerializeToString()  # type: ignore[no-any-return]


async def list_topic_snapshots(call: UnaryCall, body: bytes) -> bytes:
    request = decode_request(messages.ListTopicSnapshotsRequest, body)
    topic = resource_name(request.topic, "topics")
    names, token = await call.services.topics.list_topic_snapshots(topic, page_of(request))
    response = messages.ListTopicSnapshotsResponse(snapshots=names, next_page_token=token)
    return response.SerializeToString()  # type: ignore[no-any-return]
