"""Ordering keys through the Python client: published in batches, received by a streaming handler (D2, A6)."""

import threading
from collections import defaultdict

from google.cloud.pubsub_v1.subscriber.message import Message
from google.cloud.pubsub_v1.types import BatchSettings, FlowControl

from tests.clients.conftest import ORDERED, MakePublisher, MakeSubscriber
from tests.fixtures.google import SECONDS, Google, Handler


def by_key(handler: Handler) -> dict[str, list[int]]:
    """The numbers that came, by ordering key."""
    found: dict[str, list[int]] = defaultdict(list)
    for message in handler.received:
        found[message.ordering_key].append(int(message.data))
    return dict(found)


def publish_numbers(google: Google, make_publisher: MakePublisher, keys: int, each: int) -> None:
    """To so many keys by turns, in batches."""
    publisher = make_publisher(BatchSettings(max_messages=7), ORDERED)
    futures = [
        publisher.publish(google.topic, f"{n}".encode(), ordering_key=f"key-{key}")
        for n in range(each)
        for key in range(keys)
    ]
    assert len({future.result(SECONDS) for future in futures}) == keys * each
    publisher.stop()


def test_each_key_comes_in_order_and_one_message_at_a_time(google: Google, make_publisher: MakePublisher) -> None:
    """D2, A6: published while the handler runs."""
    google.create(enable_message_ordering=True)
    lock, at_work, overlaps = threading.Lock(), set(), []

    def react(message: Message) -> None:
        with lock:
            overlaps.extend(at_work & {message.ordering_key})
            at_work.add(message.ordering_key)
        message.ack()
        with lock:
            at_work.discard(message.ordering_key)

    handler = Handler(react)
    with google.subscribed(handler):
        publish_numbers(google, make_publisher, keys=5, each=60)
        handler.wait_for(300)
    assert by_key(handler) == {f"key-{key}": [*range(60)] for key in range(5)}
    assert overlaps == []
    assert google.pull_at_once() == []


def test_a_backlog_of_keys_comes_in_order_through_a_narrow_stream(
    google: Google, make_publisher: MakePublisher
) -> None:
    """D2, A6: flow control cuts through runs of a key."""
    google.create(enable_message_ordering=True)
    publish_numbers(google, make_publisher, keys=3, each=20)
    handler = Handler()
    with google.subscribed(handler, flow_control=FlowControl(max_messages=4)):
        handler.wait_for(60)
    assert by_key(handler) == {f"key-{key}": [*range(20)] for key in range(3)}


def test_a_nack_brings_a_message_and_all_later_ones_of_its_key_back_in_order(google: Google) -> None:
    """D2, A6: acks of the later ones notwithstanding; other keys go on."""
    google.create(enable_message_ordering=True)
    google.publish(*[f"{n}" for n in range(10)], ordering_key="nacked")
    google.publish(*[f"{n}" for n in range(10)], ordering_key="other")
    nacked = threading.Event()

    def react(message: Message) -> None:
        if (message.ordering_key, message.data) == ("nacked", b"3") and not nacked.is_set():
            nacked.set()
            message.nack()
        else:
            message.ack()

    def in_order_to_the_end() -> bool:
        numbers = by_key(handler).get("nacked", [])
        return numbers.count(3) == 2 and numbers[-7:] == [*range(3, 10)] and len(numbers) >= 11

    handler = Handler(react)
    with google.subscribed(handler):
        count = 21
        while not in_order_to_the_end():  # what the client had of the key at the nack it hands out as well
            handler.wait_for(count)
            count = len(handler.received) + 1
    numbers = by_key(handler)
    assert numbers["nacked"][:4] == [0, 1, 2, 3]
    assert numbers["other"] == [*range(10)]
    assert google.pull_at_once() == []


def test_two_subscribers_never_have_a_key_out_of_order_between_them(
    google: Google, make_publisher: MakePublisher, make_subscriber: MakeSubscriber
) -> None:
    """D2, A6: in the order in which handlers get to work, whichever client it is."""
    google.create(enable_message_ordering=True)
    order: dict[str, list[int]] = defaultdict(list)
    lock, all_there = threading.Lock(), threading.Event()

    def react(message: Message) -> None:
        with lock:
            order[message.ordering_key].append(int(message.data))
            if sum(map(len, order.values())) == 200:
                all_there.set()
        message.ack()

    first, second = Handler(react), Handler(react)
    other = Google(google.publisher, make_subscriber(), google.project)
    with google.subscribed(first), other.subscribed(second):
        publish_numbers(google, make_publisher, keys=8, each=25)
        assert all_there.wait(SECONDS)
    assert dict(order) == {f"key-{key}": [*range(25)] for key in range(8)}
