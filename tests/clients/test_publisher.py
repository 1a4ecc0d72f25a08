"""The Python client's publisher: batches, ordering keys, flow control, errors (D2)."""

import os
from typing import Any

import grpc
import httpx
import pytest
from google.api_core import exceptions, retry
from google.cloud import pubsub_v1
from google.cloud.pubsub_v1.publisher.exceptions import MessageTooLargeError, PublishToPausedOrderingKeyException
from google.cloud.pubsub_v1.types import BatchSettings, LimitExceededBehavior, PublisherOptions, PublishFlowControl
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

from tests.clients.conftest import ORDERED, MakePublisher
from tests.fixtures.google import SECONDS, Google, Handler

_NEVER = 3600.0  # seconds: the client's timer is not what sends a batch


def test_a_batch_goes_out_when_it_is_full_and_the_rest_when_the_publisher_stops(
    google: Google, make_publisher: MakePublisher
) -> None:
    """D2, A1: nothing that was handed to the publisher is left behind."""
    google.create()
    publisher = make_publisher(BatchSettings(max_messages=10, max_latency=_NEVER))
    futures = [publisher.publish(google.topic, f"{n}".encode()) for n in range(25)]
    full, rest = futures[:18], futures[20:]  # the client takes one message less than it is allowed
    assert len({future.result(SECONDS) for future in full}) == 18
    assert not any(future.done() for future in rest)
    publisher.stop()
    assert {m.message_id for m in google.take(25)} == {future.result(SECONDS) for future in futures}


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(BatchSettings(max_bytes=1_000, max_latency=_NEVER), id="by its bytes"),
        pytest.param(BatchSettings(max_latency=0.05), id="by its age"),
        pytest.param(BatchSettings(max_messages=1), id="one message each"),
    ],
)
def test_a_batch_goes_out(google: Google, make_publisher: MakePublisher, settings: Any) -> None:
    """D2, A1: the ids that the futures have are those of their own messages, in order."""
    google.create()
    publisher = make_publisher(settings)
    futures = [publisher.publish(google.topic, b"x" * 100, number=f"{n}") for n in range(30)]
    publisher.stop()
    ids = [future.result(SECONDS) for future in futures]
    numbers = {m.message_id: m.attributes["number"] for m in google.take(30)}
    assert [numbers[message_id] for message_id in ids] == [f"{n}" for n in range(30)]


def test_messages_of_nearly_ten_megabytes_go_both_ways(google: Google, emulator_host: str) -> None:
    """D2, A1.  With PUBSUB_EMULATOR_HOST the client sets no limits of its own, and gRPC's is 4 MiB for a response;
    so the subscriber has the channel that it makes for Google's service, but for the encryption.
    """
    google.create()
    data = os.urandom(9_990_000)
    message_id = google.publisher.publish(google.topic, data).result(SECONDS)
    unlimited = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    channel = grpc.insecure_channel(emulator_host, options=unlimited)
    subscriber = pubsub_v1.SubscriberClient(transport=SubscriberGrpcTransport(channel=channel))
    [pulled] = subscriber.pull(subscription=google.subscription, max_messages=10).received_messages
    assert (pulled.message.message_id, pulled.message.data) == (message_id, data)
    subscriber.modify_ack_deadline(
        subscription=google.subscription, ack_ids=[pulled.ack_id], ack_deadline_seconds=0
    )
    handler = Handler()
    with Google(google.publisher, subscriber, google.project).subscribed(handler):
        [streamed] = handler.wait_for(1)
    assert (streamed.message_id, streamed.data) == (message_id, data)
    subscriber.close()
    with pytest.raises(MessageTooLargeError):
        google.publisher.publish(google.topic, b"x" * 10_000_001)


def test_a_backlog_of_large_messages_comes_in_responses_that_the_client_takes(google: Google) -> None:
    """D2, A7: of 4 MiB at most, with PUBSUB_EMULATOR_HOST, however many messages a pull asks for."""
    google.create()
    futures = [google.publisher.publish(google.topic, os.urandom(100_000)) for _ in range(60)]
    ids = sorted(future.result(SECONDS) for future in futures)
    assert sorted(m.message_id for m in google.take(60)) == ids
    futures = [google.publisher.publish(google.topic, os.urandom(100_000)) for _ in range(60)]
    ids = sorted(future.result(SECONDS) for future in futures)
    handler = Handler()
    with google.subscribed(handler):
        handler.wait_for(60)
    assert sorted(m.message_id for m in handler.received) == ids


def test_a_key_whose_publish_failed_is_paused_until_it_is_resumed(
    google: Google, make_publisher: MakePublisher
) -> None:
    """D2, A6: NOT_FOUND is no error that the client tries again after."""
    publisher = make_publisher(publisher_options=ORDERED)

    def publish(text: bytes, key: str) -> str:
        message_id: str = publisher.publish(google.topic, text, ordering_key=key).result(SECONDS)
        return message_id

    with pytest.raises(exceptions.NotFound):
        publish(b"nobody has it", "a")
    # RuntimeError: it was published in the moment between the error and the pause, and cancelled.
    with pytest.raises((PublishToPausedOrderingKeyException, RuntimeError)):
        publish(b"nor this", "a")
    google.create(enable_message_ordering=True)
    with pytest.raises(PublishToPausedOrderingKeyException):
        publish(b"nor this", "a")
    other = publish(b"other", "b")
    publisher.resume_publish(google.topic, "a")
    ids = [publish(b"again", "a"), publish(b"and on", "a")]
    publisher.stop()
    taken = google.take(3)
    assert [m.message_id for m in taken if m.ordering_key == "a"] == ids
    assert [m.message_id for m in taken if m.ordering_key == "b"] == [other]


def test_a_publisher_that_may_have_few_messages_under_way_publishes_them_all(
    google: Google, make_publisher: MakePublisher
) -> None:
    """D2, A1: it waits for answers, and goes on."""
    google.create()
    flow_control = PublishFlowControl(message_limit=20, limit_exceeded_behavior=LimitExceededBehavior.BLOCK)
    publisher = make_publisher(publisher_options=PublisherOptions(flow_control=flow_control))
    futures = [publisher.publish(google.topic, f"{n}".encode()) for n in range(200)]
    assert len({future.result(SECONDS) for future in futures}) == 200
    assert {int(m.data) for m in google.take(200)} == set(range(200))


def test_a_retry_and_a_timeout_of_ones_own_are_used(google: Google) -> None:
    """D2: grpc-timeout is understood; what succeeds is not published twice."""
    google.create()
    own = retry.Retry(predicate=retry.if_exception_type(exceptions.Aborted, exceptions.ServiceUnavailable))
    future = google.publisher.publish(google.topic, b"once", retry=own, timeout=30)
    assert [m.message_id for m in google.take(1)] == [future.result(SECONDS)]
    assert google.pull_at_once() == []


def test_a_message_beyond_a_limit_is_refused_with_what_is_wrong(google: Google) -> None:
    """D2: in the exception of the future."""
    google.create()
    too_many = {f"key-{n}": "x" for n in range(101)}
    with pytest.raises(exceptions.InvalidArgument, match="attributes"):
        google.publisher.publish(google.topic, b"x", **too_many).result(SECONDS)
    with pytest.raises(exceptions.InvalidArgument):
        google.publisher.publish(google.topic, b"").result(SECONDS)


def test_a_publish_that_a_quota_refuses_is_sent_again_by_the_client(google: Google, broker_url: str) -> None:
    """E4: as with Google's service, whose RESOURCE_EXHAUSTED the client takes for a reason to try again."""
    google.create()
    limits = {"limits": {"publishMessages": 50}}
    httpx.patch(f"{broker_url}/v1/{google.project}/quotas", json=limits).raise_for_status()
    # As its own, which waits four times longer after each refusal: after the fifth for up to 51 s.
    refused = retry.if_exception_type(exceptions.ResourceExhausted)
    often = retry.Retry(predicate=refused, maximum=0.5, timeout=SECONDS)
    futures = [google.publisher.publish(google.topic, f"{n}".encode(), retry=often) for n in range(150)]
    ids = {future.result(SECONDS) for future in futures}
    assert {received.message_id for received in google.take(150)} == ids
