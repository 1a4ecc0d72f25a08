"""Retention: a topic that keeps its messages for a while, so that a new reader can begin in the past.

python examples/retention.py
"""

import contextlib
import os

from google.api_core.exceptions import NotFound
from google.cloud import pubsub_v1
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from google.pubsub_v1.types import Subscription, Topic

os.environ.setdefault("PUBSUB_EMULATOR_HOST", "127.0.0.1:8085")

PROJECT = "projects/example-retention"
TOPIC, SUBSCRIPTION = f"{PROJECT}/topics/prices", f"{PROJECT}/subscriptions/newcomer"
HOUR = 3_600  # seconds; 10 minutes to 31 days are allowed


def clean_up() -> None:
    with contextlib.suppress(NotFound):
        subscriber.delete_subscription(subscription=SUBSCRIPTION)
    with contextlib.suppress(NotFound):
        publisher.delete_topic(topic=TOPIC)


with pubsub_v1.PublisherClient() as publisher, pubsub_v1.SubscriberClient() as subscriber:
    clean_up()
    # Without this a message is kept until every subscription has acknowledged it, and not at all without one.
    publisher.create_topic(request=Topic(name=TOPIC, message_retention_duration=Duration(seconds=HOUR)))
    for price in (100, 101, 99):
        publisher.publish(TOPIC, f"price {price}".encode()).result()
    print("three messages were published; nobody was subscribed")

    # Of its own, a subscription keeps what is not acknowledged for 7 days; here for an hour.
    made = subscriber.create_subscription(
        request=Subscription(name=SUBSCRIPTION, topic=TOPIC, message_retention_duration=Duration(seconds=HOUR))
    )
    print(f"the subscription keeps messages for {made.message_retention_duration.total_seconds() / HOUR:.0f} h")
    begin = Timestamp()
    begin.GetCurrentTime()
    begin.seconds -= HOUR
    subscriber.seek(request={"subscription": SUBSCRIPTION, "time": begin})
    received = subscriber.pull(subscription=SUBSCRIPTION, max_messages=10).received_messages
    print("after a seek to an hour ago it gets", [m.message.data.decode() for m in received])
    clean_up()
