"""Ordering keys: what is published with the same key comes in that order; keys do not wait for each other.

python examples/ordering_keys.py
"""

import contextlib
import os

from google.api_core.exceptions import NotFound
from google.cloud import pubsub_v1
from google.cloud.pubsub_v1.types import PublisherOptions
from google.pubsub_v1.types import ReceivedMessage, Subscription

os.environ.setdefault("PUBSUB_EMULATOR_HOST", "127.0.0.1:8085")

TOPIC, SUBSCRIPTION = "projects/example-ordering/topics/accounts", "projects/example-ordering/subscriptions/ledger"


def clean_up() -> None:
    with contextlib.suppress(NotFound):
        subscriber.delete_subscription(subscription=SUBSCRIPTION)
    with contextlib.suppress(NotFound):
        publisher.delete_topic(topic=TOPIC)


def pull() -> list[ReceivedMessage]:
    received = list(subscriber.pull(subscription=SUBSCRIPTION, max_messages=100).received_messages)
    print("got ", [f"{m.message.ordering_key}: {m.message.data.decode()}" for m in received])
    return received


ordered = PublisherOptions(
    enable_message_ordering=True
)  # the client sends a key's messages one request after another
with pubsub_v1.PublisherClient(publisher_options=ordered) as publisher, pubsub_v1.SubscriberClient() as subscriber:
    clean_up()
    publisher.create_topic(name=TOPIC)
    subscriber.create_subscription(
        request=Subscription(name=SUBSCRIPTION, topic=TOPIC, enable_message_ordering=True)
    )

    deposits = [("ada", "+100"), ("grace", "+7"), ("ada", "-30"), ("ada", "-5"), ("grace", "-2")]
    for future in [publisher.publish(TOPIC, text.encode(), ordering_key=key) for key, text in deposits]:
        future.result()

    received = pull()
    # Ada's second booking fails: it and what follows it with her key come again, in order.  Grace's are done.
    failed = next(m for m in received if m.message.data == b"-30")
    print("nack", failed.message.data.decode())
    subscriber.acknowledge(
        subscription=SUBSCRIPTION, ack_ids=[m.ack_id for m in received if m.message.data in (b"+100", b"+7", b"-2")]
    )
    subscriber.modify_ack_deadline(subscription=SUBSCRIPTION, ack_ids=[failed.ack_id], ack_deadline_seconds=0)
    again = pull()
    subscriber.acknowledge(subscription=SUBSCRIPTION, ack_ids=[m.ack_id for m in again])
    clean_up()
