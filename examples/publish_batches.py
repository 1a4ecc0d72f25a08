"""Many messages, quickly: the client collects them into requests, the broker stores each request with one commit.

python examples/publish_batches.py
"""

import contextlib
import os
import time

from google.api_core.exceptions import NotFound
from google.cloud import pubsub_v1
from google.cloud.pubsub_v1.types import BatchSettings

os.environ.setdefault("PUBSUB_EMULATOR_HOST", "127.0.0.1:8085")

TOPIC, SUBSCRIPTION = "projects/example-batches/topics/clicks", "projects/example-batches/subscriptions/counter"
COUNT = 2_000

# A request goes out when one of these is reached; 1,000 messages and 10 MB are the most that a request may have.
BATCHES = BatchSettings(max_messages=500, max_bytes=1_000_000, max_latency=0.05)


def clean_up() -> None:
    with contextlib.suppress(NotFound):
        subscriber.delete_subscription(subscription=SUBSCRIPTION)
    with contextlib.suppress(NotFound):
        publisher.delete_topic(topic=TOPIC)


with pubsub_v1.PublisherClient(BATCHES) as publisher, pubsub_v1.SubscriberClient() as subscriber:
    clean_up()  # what a run that was stopped halfway left
    publisher.create_topic(name=TOPIC)
    subscriber.create_subscription(name=SUBSCRIPTION, topic=TOPIC)

    begun = time.monotonic()
    # publish() returns at once; the future has the message id when the broker has the message on disk.
    futures = [publisher.publish(TOPIC, f"click {number}".encode()) for number in range(COUNT)]
    ids = [future.result() for future in futures]
    print(f"{len(set(ids))} messages are stored, in {time.monotonic() - begun:.2f} s; the last id is {ids[-1]}")

    received = 0
    while received < COUNT:
        response = subscriber.pull(subscription=SUBSCRIPTION, max_messages=1_000)
        subscriber.acknowledge(subscription=SUBSCRIPTION, ack_ids=[m.ack_id for m in response.received_messages])
        received += len(response.received_messages)
        print(f"pulled and acknowledged {received}")
    clean_up()
