"""A first message: make a topic and a subscription, publish, receive, acknowledge.

python examples/first_message.py
"""

import contextlib
import os

from google.api_core.exceptions import AlreadyExists
from google.cloud import pubsub_v1

# All that Google's client libraries need to know: where the broker is.
os.environ.setdefault("PUBSUB_EMULATOR_HOST", "127.0.0.1:8085")

topic = "projects/demo/topics/python"
subscription = "projects/demo/subscriptions/python"

with pubsub_v1.PublisherClient() as publisher, pubsub_v1.SubscriberClient() as subscriber:
    with contextlib.suppress(AlreadyExists):  # from the run before
        publisher.create_topic(name=topic)
    with contextlib.suppress(AlreadyExists):
        subscriber.create_subscription(name=subscription, topic=topic)

    print("published", publisher.publish(topic, b"hello", lang="en").result())

    response = subscriber.pull(subscription=subscription, max_messages=10)
    for received in response.received_messages:
        print("received", received.message.message_id, received.message.data, dict(received.message.attributes))
    # A message that is not acknowledged within its ack deadline is redelivered.
    subscriber.acknowledge(subscription=subscription, ack_ids=[m.ack_id for m in response.received_messages])
