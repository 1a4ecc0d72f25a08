"""One message, many readers: each subscription gets what is published after it was made, whatever the others do.

python examples/fan_out.py
"""

import contextlib
import os

from google.api_core.exceptions import NotFound
from google.cloud import pubsub_v1

os.environ.setdefault("PUBSUB_EMULATOR_HOST", "127.0.0.1:8085")

PROJECT = "projects/example-fan-out"
TOPIC = f"{PROJECT}/topics/signups"
EARLY = [f"{PROJECT}/subscriptions/{reader}" for reader in ("mail", "billing", "search")]
LATE = f"{PROJECT}/subscriptions/late"


def clean_up() -> None:
    for subscription in [*EARLY, LATE]:
        with contextlib.suppress(NotFound):
            subscriber.delete_subscription(subscription=subscription)
    with contextlib.suppress(NotFound):
        publisher.delete_topic(topic=TOPIC)


with pubsub_v1.PublisherClient() as publisher, pubsub_v1.SubscriberClient() as subscriber:
    clean_up()
    publisher.create_topic(name=TOPIC)
    for subscription in EARLY:
        subscriber.create_subscription(name=subscription, topic=TOPIC)
    publisher.publish(TOPIC, b"ada signed up").result()
    subscriber.create_subscription(name=LATE, topic=TOPIC)
    publisher.publish(TOPIC, b"grace signed up").result()

    for subscription in [*EARLY, LATE]:
        response = subscriber.pull(subscription=subscription, max_messages=10)
        texts = [received.message.data.decode() for received in response.received_messages]
        print(f"{subscription.rsplit('/', 1)[1]:8} got {texts}")
    # Nobody has acknowledged anything yet, and nobody waits for anybody: a position is each subscription's own.
    clean_up()
