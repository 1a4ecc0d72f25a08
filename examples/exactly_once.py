"""Exactly-once delivery: an ack is answered, one that came too late is refused; what was acked never comes again.

python examples/exactly_once.py
"""

import contextlib
import os
import queue

from google.api_core.exceptions import GoogleAPICallError, NotFound
from google.cloud import pubsub_v1
from google.cloud.pubsub_v1.subscriber.message import Message
from google.pubsub_v1.types import Subscription

os.environ.setdefault("PUBSUB_EMULATOR_HOST", "127.0.0.1:8085")

TOPIC, SUBSCRIPTION = "projects/example-once/topics/payments", "projects/example-once/subscriptions/booking"


def clean_up() -> None:
    with contextlib.suppress(NotFound):
        subscriber.delete_subscription(subscription=SUBSCRIPTION)
    with contextlib.suppress(NotFound):
        publisher.delete_topic(topic=TOPIC)


with pubsub_v1.PublisherClient() as publisher, pubsub_v1.SubscriberClient() as subscriber:
    clean_up()
    publisher.create_topic(name=TOPIC)
    subscriber.create_subscription(
        request=Subscription(name=SUBSCRIPTION, topic=TOPIC, enable_exactly_once_delivery=True)
    )

    # On a stream: the future of the ack says whether the broker has it.
    arrived: queue.SimpleQueue[Message] = queue.SimpleQueue()
    receiving = subscriber.subscribe(SUBSCRIPTION, callback=arrived.put)
    publisher.publish(TOPIC, b"pay 10").result()
    message = arrived.get(timeout=30)
    outcome = message.ack_with_response().result(timeout=30)
    print(f"{message.data.decode()}: the ack is {outcome.name}; now it is safe to forget the message")
    receiving.cancel()
    receiving.result()

    # With pull: the first delivery is given back, the second is the one that counts.
    publisher.publish(TOPIC, b"pay 20").result()
    [first] = subscriber.pull(subscription=SUBSCRIPTION, max_messages=1).received_messages
    subscriber.modify_ack_deadline(subscription=SUBSCRIPTION, ack_ids=[first.ack_id], ack_deadline_seconds=0)
    [second] = subscriber.pull(subscription=SUBSCRIPTION, max_messages=1).received_messages
    try:
        subscriber.acknowledge(subscription=SUBSCRIPTION, ack_ids=[first.ack_id])
    except GoogleAPICallError as error:
        print(f"the ack of the first delivery is refused: {error.message}")
    subscriber.acknowledge(subscription=SUBSCRIPTION, ack_ids=[second.ack_id])
    print("the ack of the second delivery holds")
    clean_up()
