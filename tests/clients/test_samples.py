"""What Google's samples show of the Python client, as programs of our own (D2)."""

import json
import os
import subprocess
import sys
import threading
from concurrent import futures
from pathlib import Path

import pytest
from google.api_core import exceptions
from google.cloud import pubsub_v1
from google.cloud.pubsub_v1.publisher.futures import Future
from google.cloud.pubsub_v1.subscriber.message import Message
from google.cloud.pubsub_v1.types import FlowControl
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.pubsub_v1 import types

from tests.fixtures.broker import repository
from tests.fixtures.google import SECONDS, Google, Handler, hold

_WORK_SECONDS = 1.3  # longer than the deadlines of the sample with leases


def test_a_program_needs_nothing_but_pubsub_emulator_host(emulator_host: str, project: str) -> None:
    """D2, A1, A7: the quickstart, in a process that has no credentials and knows no other address."""
    own = {"PUBSUB_EMULATOR_HOST": emulator_host, "PYTHONPATH": str(repository())}
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("GOOGLE_", "PUBSUB_"))}
    program = Path(__file__).parent / "quickstart.py"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", program, project.removeprefix("projects/")],
        env=environment | own,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["topics"] == [f"{project}/topics/greetings"]
    assert seen["same_ids"]
    assert seen["texts"] == sorted(f"hello {n} quickstart" for n in range(120))


def test_publish_with_callbacks_that_hear_of_successes_and_failures(google: Google) -> None:
    """D2, A1: the callback of a message for a missing topic gets NotFound, and no other does."""
    google.create()
    published: list[str] = []
    failed: list[BaseException] = []

    def callback(done: Future) -> None:
        try:
            published.append(done.result(timeout=SECONDS))
        except exceptions.GoogleAPICallError as error:
            failed.append(error)

    missing = f"{google.project}/topics/missing"
    sent = [google.publisher.publish(google.topic, f"{n}".encode()) for n in range(10)]
    sent.append(google.publisher.publish(missing, b"nobody has it"))
    for future in sent:
        future.add_done_callback(callback)
    futures.wait(sent, timeout=SECONDS)
    assert sorted(m.message_id for m in google.take(10)) == sorted(published)
    assert [type(error) for error in failed] == [exceptions.NotFound]


def test_subscribe_for_a_while_and_stop(google: Google) -> None:
    """D2: the future of a subscriber that has no fault ends when the program cancels it, and not before."""
    google.create()
    handler = Handler()
    future = google.subscriber.subscribe(google.subscription, callback=handler)
    google.publish("hello")
    handler.wait_for(1)
    with pytest.raises(futures.TimeoutError):
        future.result(timeout=0.2)
    future.cancel()
    future.result(timeout=SECONDS)
    google.publish("too late")
    assert [m.message.data for m in google.pull()] == [b"too late"]
    assert handler.texts == ["hello"]


def test_subscribe_first_and_create_the_subscription_when_that_fails(google: Google) -> None:
    """D2: an optimistic program, which looks for nothing beforehand."""
    google.publisher.create_topic(name=google.topic)
    handler = Handler()
    with pytest.raises(exceptions.NotFound):
        google.subscriber.subscribe(google.subscription, handler).result(SECONDS)
    google.subscriber.create_subscription(name=google.subscription, topic=google.topic)
    with google.subscribed(handler):
        google.publish("now")
        handler.wait_for(1)
    assert handler.texts == ["now"]


def test_receive_attributes_and_keep_to_flow_control(google: Google) -> None:
    """D2, A1: a handler never has more messages at work than its program allows."""
    google.create()
    sent = [
        google.publisher.publish(google.topic, b"data", origin="samples", username="gcp", number=f"{n}")
        for n in range(30)
    ]
    futures.wait(sent, timeout=SECONDS)
    lock, at_work, most = threading.Lock(), set(), 0

    def react(message: Message) -> None:
        nonlocal most
        with lock:
            at_work.add(message.message_id)
            most = max(most, len(at_work))
        threading.Event().wait(0.005)
        with lock:
            at_work.discard(message.message_id)
        message.ack()

    handler = Handler(react)
    with google.subscribed(handler, flow_control=FlowControl(max_messages=3)):
        handler.wait_for(30)
    assert most <= 3
    expected = {(("number", f"{n}"), ("origin", "samples"), ("username", "gcp")) for n in range(30)}
    assert {tuple(sorted(m.attributes.items())) for m in handler.received} == expected


def test_pull_synchronously_and_extend_the_leases_of_what_is_being_worked_on(google: Google) -> None:
    """D2, A7: what nobody works on comes again at its deadline, what is extended does not."""
    google.create()
    google.publish("slow", "abandoned")
    received = {m.message.data: m.ack_id for m in google.pull()}

    def extend(seconds: int, *ack_ids: str) -> None:
        google.subscriber.modify_ack_deadline(
            subscription=google.subscription, ack_ids=ack_ids, ack_deadline_seconds=seconds
        )

    extend(1, *received.values())
    with futures.ThreadPoolExecutor() as pool:
        work = pool.submit(threading.Event().wait, _WORK_SECONDS)
        again = pool.submit(google.pull)
        while not futures.wait([work], timeout=0.2).done:
            extend(2, received[b"slow"])
        google.subscriber.acknowledge(subscription=google.subscription, ack_ids=[received[b"slow"]])
        [abandoned] = again.result(SECONDS)
    assert abandoned.message.data == b"abandoned"
    google.subscriber.acknowledge(subscription=google.subscription, ack_ids=[abandoned.ack_id])
    assert google.pull_at_once() == []


def test_a_dead_letter_policy_is_created_counted_changed_and_removed(google: Google) -> None:
    """D2, A5: delivery attempts are counted from 1 while there is a policy."""
    dead = f"{google.project}/topics/dead"
    google.publisher.create_topic(name=dead)
    google.create(dead_letter_policy=types.DeadLetterPolicy(dead_letter_topic=dead, max_delivery_attempts=10))
    google.publish("tried")
    handler = Handler(lambda message: message.nack() if message.delivery_attempt < 3 else message.ack())
    with google.subscribed(handler):
        handler.wait_for(3)
    assert [m.delivery_attempt for m in handler.received] == [1, 2, 3]

    def update(**fields: object) -> types.Subscription:
        return google.subscriber.update_subscription(
            subscription=types.Subscription(name=google.subscription, topic=google.topic, **fields),
            update_mask=FieldMask(paths=["dead_letter_policy"]),
        )

    policy = types.DeadLetterPolicy(dead_letter_topic=dead, max_delivery_attempts=20)
    assert update(dead_letter_policy=policy).dead_letter_policy == policy
    assert update().dead_letter_policy == types.DeadLetterPolicy()
    google.publish("not counted")
    plain = Handler()
    with google.subscribed(plain):
        [message] = plain.wait_for(1)
    assert message.delivery_attempt is None


def test_a_filter_is_set_at_creation_and_never_changed(google: Google) -> None:
    """D2, A3: a change is refused with InvalidArgument, as by Google's service."""
    google.create(filter='attributes.author="unknown"')
    for author in ("known", "unknown"):
        google.publisher.publish(google.topic, author.encode(), author=author).result(SECONDS)
    handler = Handler()
    with google.subscribed(handler):
        handler.wait_for(1)
    assert handler.texts == ["unknown"]
    changed = types.Subscription(name=google.subscription, filter='attributes.author="known"')
    with pytest.raises(exceptions.InvalidArgument):
        google.subscriber.update_subscription(subscription=changed, update_mask=FieldMask(paths=["filter"]))


def test_ordering_keys_are_published_and_received_in_order(google: Google) -> None:
    """D2, A6: two keys mixed, each in its own order."""
    google.create(enable_message_ordering=True)
    sent = [
        google.publisher.publish(google.topic, data, ordering_key=key)
        for data, key in (
            (b"message1", "key1"),
            (b"message2", "key2"),
            (b"message3", "key1"),
            (b"message4", "key2"),
        )
    ]
    futures.wait(sent, timeout=SECONDS)
    handler = Handler()
    with google.subscribed(handler):
        handler.wait_for(4)
    texts = {key: [m.data for m in handler.received if m.ordering_key == key] for key in ("key1", "key2")}
    assert texts == {"key1": [b"message1", b"message3"], "key2": [b"message2", b"message4"]}


def test_labels_deadline_and_retention_are_updated_by_mask(google: Google) -> None:
    """D2, A12: what the mask does not name stays."""
    google.create(labels={"team": "payments"}, ack_deadline_seconds=20)
    wanted = types.Subscription(
        name=google.subscription,
        topic=google.topic,
        ack_deadline_seconds=60,
        labels={"team": "billing", "tier": "gold"},
        message_retention_duration=Duration(seconds=3600),
    )
    by_labels = google.subscriber.update_subscription(
        subscription=wanted, update_mask=FieldMask(paths=["labels", "message_retention_duration"])
    )
    assert dict(by_labels.labels) == {"team": "billing", "tier": "gold"}
    assert (by_labels.ack_deadline_seconds, by_labels.message_retention_duration.seconds) == (20, 3600)
    request = {"subscription": wanted, "update_mask": {"paths": ["ack_deadline_seconds"]}}
    assert google.subscriber.update_subscription(request=request).ack_deadline_seconds == 60
    wanted.expiration_policy = types.ExpirationPolicy(ttl=Duration(seconds=864_000))
    request["update_mask"] = {"paths": ["expiration_policy.ttl"]}  # as a transport of task queues sends it
    updated_in_part = google.subscriber.update_subscription(request=request)
    assert (updated_in_part.expiration_policy.ttl.days, updated_in_part.ack_deadline_seconds) == (10, 60)
    topic = types.Topic(name=google.topic, labels={"team": "billing"})
    updated = google.publisher.update_topic(topic=topic, update_mask=FieldMask(paths=["labels"]))
    assert dict(updated.labels) == {"team": "billing"}
    with pytest.raises(exceptions.InvalidArgument):
        google.subscriber.update_subscription(subscription=wanted, update_mask=FieldMask(paths=["nonsense"]))


def test_subscriptions_are_listed_detached_and_deleted(google: Google) -> None:
    """D2, A12: by project and by topic."""
    google.create()
    other = google.subscription + "-2"
    google.subscriber.create_subscription(name=other, topic=google.topic)
    everywhere = {"project": google.project}
    assert {s.name for s in google.subscriber.list_subscriptions(request=everywhere)} == {
        google.subscription,
        other,
    }
    assert set(google.publisher.list_topic_subscriptions(request={"topic": google.topic})) == {
        google.subscription,
        other,
    }
    google.publisher.detach_subscription(request={"subscription": google.subscription})
    assert google.subscriber.get_subscription(request={"subscription": google.subscription}).detached
    google.subscriber.delete_subscription(request={"subscription": google.subscription})
    google.publisher.delete_topic(request={"topic": google.topic})
    [left] = google.subscriber.list_subscriptions(request=everywhere)
    assert (left.name, left.topic) == (other, "_deleted-topic_")
    assert list(google.publisher.list_topics(request=everywhere)) == []
    with pytest.raises(exceptions.NotFound):
        google.publish("too late")


def test_a_subscriber_made_from_the_transport_of_another_sees_the_same(google: Google) -> None:
    """D2: clients that share a channel, as programs with many subscriptions do."""
    google.create()
    shared = pubsub_v1.SubscriberClient(transport=google.subscriber.transport)
    others = [f"{google.subscription}-{n}" for n in range(4)]
    for name in others:
        shared.create_subscription(name=name, topic=google.topic)
    handlers = [Handler(hold) for _ in others]
    streams = [shared.subscribe(name, handler) for name, handler in zip(others, handlers, strict=True)]
    google.publish("to all")
    for handler in handlers:
        [message] = handler.wait_for(1)
        message.ack()
    for stream in streams:
        stream.cancel()
        stream.result(SECONDS)
    assert [handler.texts for handler in handlers] == [["to all"]] * 4
