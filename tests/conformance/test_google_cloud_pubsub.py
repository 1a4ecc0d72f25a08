"""The official google-cloud-pubsub package, unchanged, over REST and over gRPC (D2).

Over gRPC with nothing but PUBSUB_EMULATOR_HOST set, as most programs that test against a broker of their own do it.
"""

import asyncio
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import pytest
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import pubsub_v1
from google.cloud.pubsub_v1.types import PublisherOptions
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.pubsub_v1 import types

from tests.fixtures.google import Google
from tests.fixtures.push_sink import PushSink

# Python's cgi-era helpers and protobuf's internals warn in some releases of the client; that is not our business.
pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning")


@pytest.fixture(params=["rest", "grpc"])
def google(
    broker_url: str, project: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Google]:
    if request.param == "grpc":
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", urlsplit(broker_url).netloc)
        # Not over REST: the client waits for 2^32 seconds then, which is more than its sockets can.
        publisher = pubsub_v1.PublisherClient(publisher_options=PublisherOptions(enable_message_ordering=True))
        subscriber = pubsub_v1.SubscriberClient()
    else:
        monkeypatch.delenv("PUBSUB_EMULATOR_HOST", raising=False)
        options = {"client_options": {"api_endpoint": broker_url}, "credentials": AnonymousCredentials()}
        publisher = pubsub_v1.PublisherClient(transport="rest", **options)
        subscriber = pubsub_v1.SubscriberClient(transport="rest", **options)
    clients = Google(publisher, subscriber, project)
    yield clients
    clients.close()


def test_a_topic_is_created_read_listed_updated_and_deleted(google: Google) -> None:
    """D2, A12: what is read equals what create and update answered."""
    publisher = google.publisher
    created = publisher.create_topic(request={"name": google.topic, "labels": {"team": "payments"}})
    assert created == types.Topic(name=google.topic, labels={"team": "payments"})
    assert publisher.get_topic(topic=google.topic) == created
    topic = types.Topic(
        name=google.topic, labels={"team": "billing"}, message_retention_duration=Duration(seconds=3600)
    )
    mask = FieldMask(paths=["labels", "message_retention_duration"])
    updated = publisher.update_topic(topic=topic, update_mask=mask)
    assert dict(updated.labels) == {"team": "billing"}
    assert publisher.get_topic(topic=google.topic) == updated
    publisher.delete_topic(topic=google.topic)
    with pytest.raises(exceptions.NotFound):
        publisher.get_topic(topic=google.topic)


def test_lists_go_over_all_pages(google: Google) -> None:
    """D2, A12: the client's iterators follow the page tokens to the end."""
    names = {f"{google.project}/topics/topic-{n}" for n in range(5)}
    for name in names:
        google.publisher.create_topic(name=name)
    listed = google.publisher.list_topics(request={"project": google.project, "page_size": 2})
    assert {topic.name for topic in listed} == names
    google.publisher.create_topic(name=google.topic)
    subscriptions = {f"{google.project}/subscriptions/sub-{n}" for n in range(3)}
    for name in subscriptions:
        google.subscriber.create_subscription(name=name, topic=google.topic)
    request = {"project": google.project, "page_size": 2}
    assert {s.name for s in google.subscriber.list_subscriptions(request=request)} == subscriptions
    attached = google.publisher.list_topic_subscriptions(request={"topic": google.topic, "page_size": 2})
    assert set(attached) == subscriptions


def test_a_subscription_is_created_read_updated_detached_and_deleted(google: Google) -> None:
    """D2, A12: with the service's defaults where nothing was given."""
    subscriber = google.subscriber
    google.create()
    created = subscriber.get_subscription(subscription=google.subscription)
    assert created.topic == google.topic
    assert created.ack_deadline_seconds == 10
    assert created.message_retention_duration.days == 7
    assert created.expiration_policy.ttl.days == 31
    assert created.state == types.Subscription.State.ACTIVE
    wanted = types.Subscription(
        name=google.subscription,
        labels={"team": "billing"},
        ack_deadline_seconds=30,
        retry_policy=types.RetryPolicy(minimum_backoff=Duration(seconds=1), maximum_backoff=Duration(seconds=5)),
    )
    mask = FieldMask(paths=["labels", "ack_deadline_seconds", "retry_policy"])
    updated = subscriber.update_subscription(subscription=wanted, update_mask=mask)
    assert (dict(updated.labels), updated.ack_deadline_seconds) == ({"team": "billing"}, 30)
    assert updated.retry_policy.maximum_backoff.seconds == 5
    google.publisher.detach_subscription(request={"subscription": google.subscription})
    assert subscriber.get_subscription(subscription=google.subscription).detached
    subscriber.delete_subscription(subscription=google.subscription)
    with pytest.raises(exceptions.NotFound):
        subscriber.get_subscription(subscription=google.subscription)


def test_messages_are_published_pulled_and_acknowledged(google: Google) -> None:
    """D2, A1, A7: with data, attributes, ids and publish times; nothing is left after the acks."""
    google.create()
    ids = google.publish("a", "b", "c")
    received = google.pull()
    assert [(m.message.message_id, m.message.data) for m in received] == list(
        zip(ids, [b"a", b"b", b"c"], strict=True)
    )
    assert all(dict(m.message.attributes) == {"source": "test"} for m in received)
    assert all(m.message.publish_time is not None and m.delivery_attempt == 0 for m in received)
    google.subscriber.acknowledge(subscription=google.subscription, ack_ids=[m.ack_id for m in received])
    assert google.pull_at_once() == []


def test_a_deadline_is_extended_and_given_up(google: Google) -> None:
    """D2, A7: 0 seconds give a message back at once."""
    google.create()
    google.publish("kept", "nacked")
    kept, nacked = google.pull()
    for message, seconds in ((kept, 60), (nacked, 0)):
        google.subscriber.modify_ack_deadline(
            subscription=google.subscription, ack_ids=[message.ack_id], ack_deadline_seconds=seconds
        )
    assert [m.message.data for m in google.pull()] == [b"nacked"]


def test_many_messages_are_batched_by_the_client(google: Google) -> None:
    """D2, A1: by hundreds, as its defaults are."""
    google.create()
    texts = [str(n) for n in range(1000)]
    assert len(set(google.publish(*texts))) == 1000
    pulled = []
    while len(pulled) < 1000:
        pulled += (received := google.pull(1000))
        google.subscriber.acknowledge(subscription=google.subscription, ack_ids=[m.ack_id for m in received])
    assert {m.message.data.decode() for m in pulled} == set(texts)


def test_refusals_are_the_exceptions_that_programs_catch(google: Google) -> None:
    """D2: Conflict, NotFound and BadRequest, with texts that name the value."""
    google.create()
    with pytest.raises(exceptions.Conflict) as conflict:
        google.publisher.create_topic(name=google.topic)
    assert conflict.value.code == 409
    with pytest.raises(exceptions.NotFound, match="missing"):
        google.subscriber.create_subscription(
            name=f"{google.project}/subscriptions/other", topic=f"{google.project}/topics/missing"
        )
    with pytest.raises(exceptions.BadRequest, match="ack_id=bogus"):
        google.subscriber.acknowledge(subscription=google.subscription, ack_ids=["bogus"])
    with pytest.raises(exceptions.BadRequest, match="ack_deadline=601"):
        google.subscriber.modify_ack_deadline(
            subscription=google.subscription, ack_ids=["x"], ack_deadline_seconds=601
        )
    with pytest.raises(exceptions.NotFound):
        google.publisher.publish(f"{google.project}/topics/missing", b"x").result(timeout=20)


def test_messages_of_a_key_are_published_and_pulled_in_order(google: Google) -> None:
    """D2, A6: by a publisher and a subscriber that both have ordering on."""
    if google.publisher.transport.kind == "rest":
        pytest.skip("the client cannot publish in order over REST")
    google.publisher.create_topic(name=google.topic)
    google.subscriber.create_subscription(
        request=types.Subscription(name=google.subscription, topic=google.topic, enable_message_ordering=True)
    )
    futures = [
        google.publisher.publish(google.topic, f"{n}".encode(), ordering_key=f"key-{n % 2}") for n in range(40)
    ]
    assert len({future.result(timeout=20) for future in futures}) == 40
    received: dict[str, list[int]] = {"key-0": [], "key-1": []}
    while sum(map(len, received.values())) < 40:
        messages = google.pull()
        for message in messages:
            received[message.message.ordering_key].append(int(message.message.data))
        google.subscriber.acknowledge(subscription=google.subscription, ack_ids=[m.ack_id for m in messages])
    assert received == {"key-0": [*range(0, 40, 2)], "key-1": [*range(1, 40, 2)]}


def test_a_snapshot_is_taken_changed_and_sought(google: Google) -> None:
    """D2, A9: labels change, the time of expiry does not."""
    google.create()
    google.publish("held")
    name = f"{google.project}/snapshots/snapshot"
    created = google.subscriber.create_snapshot(name=name, subscription=google.subscription)
    assert (created.name, created.topic) == (name, google.topic)
    changed = google.subscriber.update_snapshot(
        snapshot=types.Snapshot(name=name, labels={"kept": "yes"}), update_mask=FieldMask(paths=["labels"])
    )
    assert (dict(changed.labels), changed.expire_time) == ({"kept": "yes"}, created.expire_time)
    assert google.subscriber.get_snapshot(snapshot=name) == changed
    assert [s.name for s in google.subscriber.list_snapshots(project=google.project)] == [name]
    assert list(google.publisher.list_topic_snapshots(topic=google.topic)) == [name]
    [received] = google.pull()
    google.subscriber.acknowledge(subscription=google.subscription, ack_ids=[received.ack_id])
    google.subscriber.seek(request={"subscription": google.subscription, "snapshot": name})
    assert [m.message.data for m in google.pull()] == [b"held"]
    google.subscriber.delete_snapshot(snapshot=name)
    with pytest.raises(exceptions.NotFound):
        google.subscriber.get_snapshot(snapshot=name)


def test_a_seek_to_a_time_skips_and_replays(google: Google) -> None:
    """D2, A9: forward counts as acked, backward brings acked messages again."""
    google.publisher.create_topic(name=google.topic)
    google.subscriber.create_subscription(
        request=types.Subscription(name=google.subscription, topic=google.topic, retain_acked_messages=True)
    )
    before = datetime.now(UTC) - timedelta(minutes=1)
    google.publish("again")
    google.subscriber.seek(request={"subscription": google.subscription, "time": before + timedelta(hours=1)})
    assert google.pull_at_once() == []
    google.subscriber.seek(request={"subscription": google.subscription, "time": before})
    assert [m.message.data for m in google.pull()] == [b"again"]


def test_a_message_that_fails_too_often_goes_to_the_dead_letter_topic(google: Google) -> None:
    """D2, A5: after as many attempts as the policy says, each with its number."""
    google.publisher.create_topic(name=google.topic)
    dead = f"{google.project}/topics/dead"
    google.publisher.create_topic(name=dead)
    policy = types.DeadLetterPolicy(dead_letter_topic=dead, max_delivery_attempts=5)
    google.subscriber.create_subscription(
        request=types.Subscription(name=google.subscription, topic=google.topic, dead_letter_policy=policy)
    )
    dead_letters = f"{google.project}/subscriptions/letters"
    google.subscriber.create_subscription(name=dead_letters, topic=dead)
    google.publish("poison")
    attempts = []
    for _ in range(5):
        [received] = google.pull()
        attempts.append(received.delivery_attempt)
        google.subscriber.modify_ack_deadline(
            subscription=google.subscription, ack_ids=[received.ack_id], ack_deadline_seconds=0
        )
    assert attempts == [1, 2, 3, 4, 5]
    assert google.pull_at_once() == []  # the claim that finds it used up
    [dead_letter] = google.subscriber.pull(subscription=dead_letters, max_messages=1).received_messages
    assert dead_letter.message.data == b"poison"
    assert dead_letter.message.attributes["CloudPubSubDeadLetterSourceSubscription"] == "sub"


def test_a_filter_chooses_messages_and_a_wrong_one_is_refused(google: Google) -> None:
    """D2, A3: BadRequest says that it is the filter."""
    google.publisher.create_topic(name=google.topic)

    def create(text: str) -> None:
        google.subscriber.create_subscription(
            request=types.Subscription(name=google.subscription, topic=google.topic, filter=text)
        )

    with pytest.raises(exceptions.BadRequest, match="filter"):
        create("attributes.env = ")
    create('attributes.env = "prod"')
    google.publisher.publish(google.topic, b"no", env="test").result(timeout=20)
    google.publisher.publish(google.topic, b"yes", env="prod").result(timeout=20)
    assert [m.message.data for m in google.pull()] == [b"yes"]


def test_a_filter_looks_into_bodies(google: Google) -> None:
    """An extension; a filter is a text for Google's clients."""
    google.create(filter='body.order.total > 100 AND attributes.env != "test"')
    for total, env in ((99, "prod"), (101, "prod"), (102, "test")):
        google.publisher.publish(google.topic, b'{"order": {"total": %d}}' % total, env=env).result(timeout=20)
    assert [m.message.data for m in google.pull()] == [b'{"order": {"total": 101}}']


def test_a_stale_ack_id_of_an_exactly_once_subscription_is_named_in_the_error(google: Google) -> None:
    """D2: in google.rpc.ErrorInfo, where the client's ack_with_response reads it."""
    google.publisher.create_topic(name=google.topic)
    google.subscriber.create_subscription(
        request=types.Subscription(name=google.subscription, topic=google.topic, enable_exactly_once_delivery=True)
    )
    google.publish("once")
    [received] = google.pull()
    google.subscriber.modify_ack_deadline(
        subscription=google.subscription, ack_ids=[received.ack_id], ack_deadline_seconds=0
    )
    with pytest.raises(exceptions.BadRequest) as refused:
        google.subscriber.acknowledge(subscription=google.subscription, ack_ids=[received.ack_id])
    assert (refused.value.reason, refused.value.domain) == ("EXACTLY_ONCE_ACKID_FAILURE", "pubsub.googleapis.com")
    assert dict(refused.value.metadata) == {received.ack_id: "PERMANENT_FAILURE_INVALID_ACK_ID"}


def test_a_push_config_is_set_read_and_removed(google: Google) -> None:
    """D2, A8: each part of it, by creation, modify_push_config and update."""
    google.publisher.create_topic(name=google.topic)
    config = types.PushConfig(
        push_endpoint="https://127.0.0.1:9/push",
        attributes={"x-goog-version": "v1"},
        oidc_token=types.PushConfig.OidcToken(service_account_email="a@example.com", audience="who"),
        no_wrapper=types.PushConfig.NoWrapper(write_metadata=True),
    )
    wanted = types.Subscription(name=google.subscription, topic=google.topic, push_config=config)
    assert google.subscriber.create_subscription(request=wanted).push_config == config
    other = types.PushConfig(
        push_endpoint="http://127.0.0.1:9/other", pubsub_wrapper=types.PushConfig.PubsubWrapper()
    )
    google.subscriber.modify_push_config(subscription=google.subscription, push_config=other)
    found = google.subscriber.get_subscription(subscription=google.subscription).push_config
    assert found == other
    assert "pubsub_wrapper" in found
    with pytest.raises(exceptions.BadRequest, match="is a push subscription"):
        google.pull()
    mask = FieldMask(paths=["push_config"])
    pulled = types.Subscription(name=google.subscription, push_config=types.PushConfig())
    updated = google.subscriber.update_subscription(subscription=pulled, update_mask=mask)
    assert updated.push_config == types.PushConfig()
    google.subscriber.modify_push_config(subscription=google.subscription, push_config=types.PushConfig())
    assert google.pull_at_once() == []


async def test_a_push_subscription_is_created_with_all_fields_and_pushed(
    google: Google, push_sink: PushSink
) -> None:
    """D2, A8: all of them are given back, and the push looks as they say."""
    path = f"/status/200/{uuid.uuid4().hex}"
    push_config = types.PushConfig(
        push_endpoint=push_sink.url + path,
        attributes={"x-goog-version": "v1"},
        oidc_token=types.PushConfig.OidcToken(service_account_email="a@b.example", audience="who"),
        no_wrapper=types.PushConfig.NoWrapper(write_metadata=True),
    )
    wanted = types.Subscription(
        name=google.subscription,
        topic=google.topic,
        push_config=push_config,
        ack_deadline_seconds=30,
        retain_acked_messages=True,
        message_retention_duration=Duration(seconds=3600),
        labels={"team": "payments"},
        enable_message_ordering=True,
        expiration_policy=types.ExpirationPolicy(ttl=Duration(seconds=86400 * 2)),
        filter='attributes.env = "prod"',
        dead_letter_policy=types.DeadLetterPolicy(dead_letter_topic=google.topic, max_delivery_attempts=7),
        retry_policy=types.RetryPolicy(minimum_backoff=Duration(seconds=1), maximum_backoff=Duration(seconds=2)),
    )

    def create() -> types.Subscription:
        google.publisher.create_topic(name=google.topic)
        created = google.subscriber.create_subscription(request=wanted)
        google.publisher.publish(google.topic, b"no").result(timeout=20)
        google.publisher.publish(google.topic, b"yes", env="prod").result(timeout=20)
        return created

    created = await asyncio.to_thread(create)
    assert created.state == types.Subscription.State.ACTIVE
    created.state = types.Subscription.State.STATE_UNSPECIFIED
    assert created == wanted
    [request] = await push_sink.wait_for(path, 1)
    assert request.body == b"yes"
    assert request.headers["env"] == "prod"
    assert request.headers["authorization"].startswith("Bearer ")

    def switch() -> types.Subscription:
        google.subscriber.modify_push_config(subscription=google.subscription, push_config=types.PushConfig())
        return google.subscriber.get_subscription(subscription=google.subscription)

    assert (await asyncio.to_thread(switch)).push_config == types.PushConfig()
