"""A message that failed comes again, later each time: the retry policy; and a nack with a delay of its own.

python examples/retry_policy.py
"""

import contextlib
import os
import time

import httpx
from google.api_core.exceptions import NotFound
from google.cloud import pubsub_v1
from google.protobuf.duration_pb2 import Duration
from google.pubsub_v1.types import RetryPolicy, Subscription

HOST = os.environ.setdefault("PUBSUB_EMULATOR_HOST", "127.0.0.1:8085")

TOPIC, SUBSCRIPTION = "projects/example-retry/topics/jobs", "projects/example-retry/subscriptions/worker"
TENTH = 100_000_000  # nanoseconds

# Short, so that you need not wait; without a policy a message that failed is there again at once.
POLICY = RetryPolicy(minimum_backoff=Duration(nanos=2 * TENTH), maximum_backoff=Duration(nanos=6 * TENTH))


def clean_up() -> None:
    with contextlib.suppress(NotFound):
        subscriber.delete_subscription(subscription=SUBSCRIPTION)
    with contextlib.suppress(NotFound):
        publisher.delete_topic(topic=TOPIC)


def next_ack_id() -> str:
    """The ack id of the next delivery; says how long it took to come."""
    begun = time.monotonic()
    while not (received := subscriber.pull(subscription=SUBSCRIPTION, max_messages=1).received_messages):
        pass
    print(f"got {received[0].message.data.decode()!r} after {time.monotonic() - begun:.1f} s")
    return received[0].ack_id


with pubsub_v1.PublisherClient() as publisher, pubsub_v1.SubscriberClient() as subscriber:
    clean_up()
    publisher.create_topic(name=TOPIC)
    subscriber.create_subscription(request=Subscription(name=SUBSCRIPTION, topic=TOPIC, retry_policy=POLICY))
    publisher.publish(TOPIC, b"a job that fails").result()

    for failure in range(1, 4):
        ack_id = next_ack_id()
        # A nack: an ack deadline of 0.  The n-th failure delays by minimum * 2^(n-1), at most by the maximum.
        subscriber.modify_ack_deadline(subscription=SUBSCRIPTION, ack_ids=[ack_id], ack_deadline_seconds=0)
        print(f"failure {failure}")

    # Of this broker only, so over plain HTTP: "not before", for a receiver that knows better than the policy.
    body = {"ackIds": [next_ack_id()], "delay": "1s"}
    httpx.post(f"http://{HOST}/v1/{SUBSCRIPTION}:nack", json=body, timeout=30).raise_for_status()
    print("nack with a delay of 1 s")

    subscriber.acknowledge(subscription=SUBSCRIPTION, ack_ids=[next_ack_id()])
    print("acknowledged: it will not come again")
    clean_up()
