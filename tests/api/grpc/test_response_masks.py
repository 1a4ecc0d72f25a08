"""x-goog-fieldmask, the one system parameter of gRPC that changes an answer."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from broker.api.generated import messages
from tests.fixtures.grpc import GrpcRest, channel_to

PUBLISHER, SUBSCRIBER = "/google.pubsub.v1.Publisher/", "/google.pubsub.v1.Subscriber/"


@pytest.fixture
def channel(broker_url: str) -> Iterator[grpc.Channel]:
    with channel_to(broker_url) as opened:
        yield opened


@pytest.fixture
def over_grpc(channel: grpc.Channel, project: str) -> GrpcRest:
    return GrpcRest(channel, project)


def _call(channel: grpc.Channel, path: str, answer: Any, mask: str, request: Any) -> Any:
    method = channel.unary_unary(path, response_deserializer=answer.FromString)
    return method(request.SerializeToString(), metadata=(("x-goog-fieldmask", mask),), timeout=60)


async def test_a_field_mask_makes_the_answer_a_part(channel: grpc.Channel, over_grpc: GrpcRest) -> None:
    topic = over_grpc.topic()
    await over_grpc.create_topic(labels={"team": "shop", "stage": "test"}, messageRetentionDuration="600s")
    get = messages.GetTopicRequest(topic=topic)
    for mask, expected in (
        ("name", messages.Topic(name=topic)),
        ("labels.team", messages.Topic(labels={"team": "shop"})),
        ("name, labels(stage)", messages.Topic(name=topic, labels={"stage": "test"})),
    ):
        assert _call(channel, f"{PUBLISHER}GetTopic", messages.Topic, mask, get) == expected
    whole = _call(channel, f"{PUBLISHER}GetTopic", messages.Topic, "*", get)
    assert whole.message_retention_duration.seconds == 600
    listing = messages.ListTopicsRequest(project=over_grpc.project)
    listed = _call(channel, f"{PUBLISHER}ListTopics", messages.ListTopicsResponse, "topics.name", listing)
    assert listed == messages.ListTopicsResponse(topics=[messages.Topic(name=topic)])


async def test_a_field_mask_holds_for_messages_as_well(channel: grpc.Channel, over_grpc: GrpcRest) -> None:
    await over_grpc.create_topic()
    await over_grpc.create_subscription()
    publish = messages.PublishRequest(topic=over_grpc.topic(), messages=[messages.PubsubMessage(data=b"x")])
    answer = _call(channel, f"{PUBLISHER}Publish", messages.PublishResponse, "message_ids", publish)
    assert len(answer.message_ids) == 1
    pull = messages.PullRequest(subscription=over_grpc.subscription(), max_messages=1)
    mask = "receivedMessages.message.data"
    pulled = _call(channel, f"{SUBSCRIBER}Pull", messages.PullResponse, mask, pull)
    [received] = pulled.received_messages
    assert (received.ack_id, received.message) == ("", messages.PubsubMessage(data=b"x"))


async def test_a_mask_of_an_unknown_field_is_refused_before_anything_is_done(
    channel: grpc.Channel, over_grpc: GrpcRest
) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        _call(channel, f"{PUBLISHER}CreateTopic", messages.Topic, "nam", messages.Topic(name=over_grpc.topic()))
    error: Any = refused.value
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "(X-Goog-FieldMask=nam): 'nam' is no field of Topic" in error.details()
    assert (await over_grpc.error("GET", over_grpc.topic()))[0] == "NOT_FOUND"
