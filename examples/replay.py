"""Replay: go back to a snapshot or to a time and get again what was acknowledged since; or forward, and skip.

python examples/replay.py
"""

import contextlib
import os

from google.api_core.exceptions import NotFound
from google.cloud import pubsub_v1
from google.pubsub_v1.types import Subscription

os.environ.setdefault("PUBSUB_EMULATOR_HOST", "127.0.0.1:8085")

PROJECT = "projects/example-replay"
TOPIC, SUBSCRIPTION = f"{PROJECT}/topics/orders", f"{PROJECT}/subscriptions/index"
SNAPSHOT = f"{PROJECT}/snapshots/before-the-release"


def clean_up() -> None:
    with contextlib.suppress(NotFound):
        subscriber.delete_snapshot(snapshot=SNAPSHOT)
    with contextlib.suppress(NotFound):
        subscriber.delete_subscription(subscription=SUBSCRIPTION)
    with contextlib.suppress(NotFound):
        publisher.delete_topic(topic=TOPIC)


def pull_and_acknowledge() -> None:
    received = subscriber.pull(subscription=SUBSCRIPTION, max_messages=100).received_messages
    subscriber.acknowledge(subscription=SUBSCRIPTION, ack_ids=[m.ack_id for m in received])
    print("    got", [m.message.data.decode() for m in received])


with pubsub_v1.PublisherClient() as publisher, pubsub_v1.SubscriberClient() as subscriber:
    clean_up()
    publisher.create_topic(name=TOPIC)
    # retain_acked_messages: a seek to a time can bring back what was acknowledged.  A snapshot needs no such thing.
    subscriber.create_subscription(request=Subscription(name=SUBSCRIPTION, topic=TOPIC, retain_acked_messages=True))

    def publish(text: str) -> None:
        publisher.publish(TOPIC, text.encode()).result()

    publish("order 1")
    pull_and_acknowledge()
    publish("order 2")
    print("a snapshot: order 1 is done, order 2 waits")
    subscriber.create_snapshot(name=SNAPSHOT, subscription=SUBSCRIPTION)
    publish("order 3")
    pull_and_acknowledge()

    print("back to the snapshot: what had not been acknowledged then, and all that came later")
    subscriber.seek(request={"subscription": SUBSCRIPTION, "snapshot": SNAPSHOT})
    pull_and_acknowledge()

    print("back to a time before all of it")
    subscriber.seek(request={"subscription": SUBSCRIPTION, "time": "2000-01-01T00:00:00Z"})
    pull_and_acknowledge()

    publish("order 4")
    print("forward: whatever waits now is skipped, order 4 with it")
    subscriber.seek(request={"subscription": SUBSCRIPTION, "time": "2100-01-01T00:00:00Z"})
    publish("order 5")
    pull_and_acknowledge()
    clean_up()
