"""The Python client's streaming subscriber: handlers, flow control, nacks, seeks, dead letters (D2)."""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import psutil
import pytest
from google.api_core import exceptions
from google.cloud import pubsub_v1
from google.cloud.pubsub_v1.subscriber.message import Message
from google.cloud.pubsub_v1.types import FlowControl
from google.protobuf.duration_pb2 import Duration
from google.pubsub_v1 import types

from tests.clients.conftest import MakeSubscriber
from tests.fixtures.broker import BrokerProcess
from tests.fixtures.google import SECONDS, Google, Handler, hold


def nack_first(times: int = 1) -> Callable[[Message], None]:
    """Nack a message so many times before it is acked."""
    seen: dict[str, int] = {}
    lock = threading.Lock()

    def react(message: Message) -> None:
        with lock:
            seen[message.message_id] = before = seen.get(message.message_id, 0) + 1
        message.nack() if before <= times else message.ack()

    return react


def test_a_handler_gets_everything_once_and_its_acks_are_sent_before_it_has_stopped(google: Google) -> None:
    """D2, A7: nothing is left to pull after it, also of what was published while it ran."""
    google.create()
    ids = google.publish(*[f"{n}" for n in range(500)])
    handler = Handler()
    with google.subscribed(handler) as future:
        handler.wait_for(500)
        later = google.publish("while it waits")
        handler.wait_for(501)
        assert future.running()
    assert sorted(m.message_id for m in handler.received) == sorted(ids + later)
    assert {m.data.decode() for m in handler.received} == {"while it waits", *(f"{n}" for n in range(500))}
    assert all(dict(m.attributes) == {"source": "test"} for m in handler.received)
    assert all(m.publish_time > datetime.now(UTC) - timedelta(minutes=5) for m in handler.received)
    assert all(m.delivery_attempt is None for m in handler.received)
    assert google.pull_at_once() == []


def test_a_stream_gets_no_more_messages_than_it_may_have_out(google: Google) -> None:
    """D2: the server keeps to max_outstanding_messages; others get what the stream may not."""
    google.create()
    google.publish(*[f"{n}" for n in range(40)])
    handler = Handler(hold)
    with google.subscribed(handler, flow_control=FlowControl(max_messages=5)):
        held = handler.wait_for(5)
        others = google.take(35)
        assert len(handler.received) == 5
        assert {m.message_id for m in others}.isdisjoint(m.message_id for m in held)
        for message in held:
            message.ack()
        google.publish("after the acks")
        assert handler.wait_for(6)[-1].data == b"after the acks"
        handler.received[-1].ack()
    assert len(handler.received) == 6


def test_a_stream_gets_no_more_bytes_than_it_may_have_out(google: Google) -> None:
    """D2: max_outstanding_bytes; the message that passes the limit may still come, and so may a lone larger one."""
    google.create()
    google.publish(*["x" * 1000 for _ in range(20)])
    handler = Handler(hold)
    with google.subscribed(handler, flow_control=FlowControl(max_bytes=2500)):
        handler.wait_for(2)
        others = google.pull_at_once()
        assert len(others) in (17, 18)
        for message in handler.wait_for(20 - len(others)):
            message.ack()
    assert len(handler.received) == 20 - len(others)


def test_two_subscribers_share_a_subscription(google: Google, make_subscriber: MakeSubscriber) -> None:
    """D2, A2: each holds what it may, and no message is with both."""
    google.create()
    first, second = Handler(hold), Handler(hold)
    other = Google(google.publisher, make_subscriber(), google.project)
    flow_control = FlowControl(max_messages=5)
    with google.subscribed(first, flow_control=flow_control), other.subscribed(second, flow_control=flow_control):
        google.publish(*[f"{n}" for n in range(20)])
        held = [*first.wait_for(5), *second.wait_for(5)]
        assert len({m.message_id for m in held}) == 10
        for message in held:
            message.ack()
        first.wait_for(10)
        second.wait_for(10)
        assert len(set(first.texts) | set(second.texts)) == 20


def test_what_a_handler_nacks_comes_again(google: Google) -> None:
    """D2, A7: with the same id, and not once it is acked."""
    google.create()
    ids = google.publish("a", "b")
    handler = Handler(nack_first())
    with google.subscribed(handler):
        handler.wait_for(4)
    assert sorted(m.message_id for m in handler.received) == sorted(ids * 2)
    assert google.pull_at_once() == []


@pytest.mark.parametrize("ordering_key", ["", "key"])
def test_a_deadline_that_comes_after_a_nack_does_not_undo_it(google: Google, ordering_key: str) -> None:
    """D2, A7: Google's Node client sends them in this order when a program nacks a message at once."""
    google.create(enable_message_ordering=True)
    google.publish("a", ordering_key=ordering_key)
    [received] = google.pull()
    for seconds in (0, 10):
        google.subscriber.modify_ack_deadline(
            subscription=google.subscription, ack_ids=[received.ack_id], ack_deadline_seconds=seconds
        )
    assert [m.message.data for m in google.pull_at_once()] == [b"a"]


def test_what_a_handler_fails_on_comes_again(google: Google) -> None:
    """D2, A7: the client nacks it, and tells the program at the end."""
    google.create()
    google.publish("a")

    def fail_once(message: Message) -> None:
        if not handler.received:
            raise ValueError("not today")
        message.ack()

    handler = Handler(fail_once)
    future = google.subscriber.subscribe(google.subscription, handler, await_callbacks_on_shutdown=True)
    stopped = threading.Event()  # the future is done long before
    future._StreamingPullFuture__manager.add_close_callback(lambda *_: stopped.set())
    handler.wait_for(2)
    with pytest.raises(ValueError, match="not today"):
        future.result(SECONDS)
    future.cancel()
    assert stopped.wait(SECONDS)
    assert google.pull_at_once() == []


def test_a_nacked_message_waits_for_the_backoff(google: Google) -> None:
    """D2, A4: no earlier than the retry policy allows."""
    google.create(
        retry_policy=types.RetryPolicy(minimum_backoff=Duration(seconds=1), maximum_backoff=Duration(seconds=10))
    )
    google.publish("a")
    times: list[float] = []
    nack = nack_first()

    def react(message: Message) -> None:
        times.append(time.monotonic())
        nack(message)

    handler = Handler(react)
    with google.subscribed(handler):
        handler.wait_for(2)
    assert times[1] - times[0] >= 1


def test_a_handler_changes_deadlines(google: Google) -> None:
    """D2, A7: 0 gives a message to whoever comes next; any other keeps it."""
    google.create()
    google.publish("given up", "kept")
    handler = Handler(hold)
    with google.subscribed(handler):
        messages = {m.data: m for m in handler.wait_for(2)}
        messages[b"kept"].modify_ack_deadline(600)
        messages[b"given up"].modify_ack_deadline(0)
        again = handler.wait_for(3)[-1]
        assert again.data == b"given up"
        again.ack()
        messages[b"kept"].ack()
    assert len(handler.received) == 3
    assert google.pull_at_once() == []


def test_a_filtered_subscription_streams_what_matches(google: Google) -> None:
    """D2, A3: what does not match never reaches the handler."""
    google.create(filter='attributes.env = "prod" AND NOT hasPrefix(attributes.region, "eu-")')
    for env, region in (("test", "us-1"), ("prod", "eu-1"), ("prod", "us-1"), ("prod", "")):
        google.publisher.publish(google.topic, f"{env} {region}".encode(), env=env, region=region).result(SECONDS)
    handler = Handler()
    with google.subscribed(handler):
        handler.wait_for(2)
    assert sorted(handler.texts) == ["prod ", "prod us-1"]


def test_a_message_that_is_nacked_too_often_comes_out_of_the_dead_letter_topic(google: Google) -> None:
    """D2, A5: after exactly five attempts, with its attributes and where it came from."""
    dead, dead_letters = f"{google.project}/topics/dead", f"{google.project}/subscriptions/letters"
    google.publisher.create_topic(name=dead)
    google.subscriber.create_subscription(name=dead_letters, topic=dead)
    google.create(dead_letter_policy=types.DeadLetterPolicy(dead_letter_topic=dead, max_delivery_attempts=5))
    [message_id] = google.publish("poison")
    handler, undertaker = Handler(Message.nack), Handler()
    with google.subscribed(handler), google.subscribed(undertaker, dead_letters):
        [dead_letter] = undertaker.wait_for(1)
    assert [m.delivery_attempt for m in handler.received] == [1, 2, 3, 4, 5]
    assert {m.message_id for m in handler.received} == {message_id}
    assert dead_letter.data == b"poison"
    assert dead_letter.attributes["source"] == "test"
    assert dead_letter.attributes["CloudPubSubDeadLetterSourceDeliveryCount"] == "5"
    assert dead_letter.attributes["CloudPubSubDeadLetterSourceSubscription"] == "sub"


def test_a_seek_to_a_snapshot_brings_acked_messages_to_a_running_handler(google: Google) -> None:
    """D2, A9: nobody has to open the stream again."""
    google.create()
    google.publish("before")
    snapshot = f"{google.project}/snapshots/snapshot"
    google.subscriber.create_snapshot(name=snapshot, subscription=google.subscription)
    google.publish("after")
    handler = Handler()
    with google.subscribed(handler):
        handler.wait_for(2)
        google.subscriber.seek(request={"subscription": google.subscription, "snapshot": snapshot})
        handler.wait_for(4)
    assert sorted(handler.texts) == ["after", "after", "before", "before"]
    google.subscriber.delete_snapshot(snapshot=snapshot)


def test_a_seek_to_a_time_brings_acked_messages_to_a_running_handler(google: Google) -> None:
    """D2, A9: nobody has to open the stream again."""
    google.create(retain_acked_messages=True)
    start = datetime.now(UTC) - timedelta(minutes=1)
    google.publish("a", "b")
    handler = Handler()
    with google.subscribed(handler):
        handler.wait_for(2)
        google.subscriber.seek(request={"subscription": google.subscription, "time": start})
        handler.wait_for(4)
    assert sorted(handler.texts) == ["a", "a", "b", "b"]


def test_a_seek_into_the_future_leaves_a_handler_nothing(google: Google) -> None:
    """D2, A9: what is published after that time is delivered."""
    google.create()
    google.publish("skipped")
    soon = datetime.now(UTC) + timedelta(milliseconds=300)
    google.subscriber.seek(request={"subscription": google.subscription, "time": soon})
    time.sleep(max(0.0, (soon - datetime.now(UTC)).total_seconds() + 0.2))
    google.publish("delivered")
    handler = Handler()
    with google.subscribed(handler):
        handler.wait_for(1)
    assert handler.texts == ["delivered"]


def test_the_deletion_of_the_subscription_ends_a_handler_with_not_found(google: Google) -> None:
    """D2: at once, also for one that waits."""
    google.create()
    google.publish("first")
    handler = Handler()
    future = google.subscriber.subscribe(google.subscription, handler)
    handler.wait_for(1)
    google.subscriber.delete_subscription(subscription=google.subscription)
    with pytest.raises(exceptions.NotFound):
        future.result(SECONDS)


def test_a_detached_subscription_ends_a_handler(google: Google) -> None:
    """D2, A12: with the error that a pull would get."""
    google.create()
    google.publish("first")
    handler = Handler()
    future = google.subscriber.subscribe(google.subscription, handler)
    handler.wait_for(1)
    google.publisher.detach_subscription(request={"subscription": google.subscription})
    with pytest.raises(exceptions.FailedPrecondition):
        future.result(SECONDS)
    with pytest.raises(exceptions.FailedPrecondition):
        google.pull()


@pytest.mark.slow
@pytest.mark.ci
def test_a_handler_outlives_the_process_it_was_connected_to(
    start_broker: Callable[..., BrokerProcess], database_url: str, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D2: a process that stops ends streams with UNAVAILABLE, one that dies ends them; the client comes back."""
    broker = start_broker("--database-url", database_url, "--port", "0")
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", broker.url.removeprefix("http://"))
    google = Google(pubsub_v1.PublisherClient(), pubsub_v1.SubscriberClient(), project)
    google.create()
    handler = Handler()
    with google.subscribed(handler) as future:
        google.publish("first")
        handler.wait_for(1)
        ends = (("after its stop", psutil.Process.terminate), ("after its death", psutil.Process.kill))
        for text, end in ends:
            [worker] = broker.workers()
            end(worker)
            worker.wait(SECONDS)
            broker.wait_until_serving()
            google.publish(text)
            handler.wait_for_text(text, seconds=90)  # the client's pauses grow fourfold
        assert future.running()
    came = dict.fromkeys(handler.texts)  # one whose ack died with its process comes again
    assert list(came) == ["first", "after its stop", "after its death"]
    assert google.pull_at_once() == []
    google.close()


def test_a_pull_of_nothing_answers_with_nothing_before_the_callers_deadline(google: Google) -> None:
    """It was DEADLINE_EXCEEDED after it, for any deadline below 20 s."""
    google.create()
    answer = google.subscriber.pull(subscription=google.subscription, max_messages=1, timeout=4, retry=None)
    assert not answer.received_messages
