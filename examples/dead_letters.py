"""Dead letters: a message that fails again and again leaves the subscription, and waits on a topic of its own.

python examples/dead_letters.py
"""

import contextlib
import os

import httpx
from google.api_core.exceptions import NotFound
from google.cloud import pubsub_v1
from google.pubsub_v1.types import DeadLetterPolicy, ExpirationPolicy, ReceivedMessage, Subscription

HOST = os.environ.setdefault("PUBSUB_EMULATOR_HOST", "127.0.0.1:8085")

PROJECT = "projects/example-dead-letters"
ORDERS, DEAD = f"{PROJECT}/topics/orders", f"{PROJECT}/topics/dead-orders"
BILLING, MORGUE = f"{PROJECT}/subscriptions/billing", f"{PROJECT}/subscriptions/dead-orders"


def clean_up() -> None:
    for subscription in (BILLING, MORGUE):
        with contextlib.suppress(NotFound):
            subscriber.delete_subscription(subscription=subscription)
    for topic in (ORDERS, DEAD):
        with contextlib.suppress(NotFound):
            publisher.delete_topic(topic=topic)


def next_of(subscription: str) -> ReceivedMessage:
    while not (received := subscriber.pull(subscription=subscription, max_messages=1).received_messages):
        pass
    return received[0]


def look_at_a_dead_letter() -> None:
    letter = next_of(MORGUE)
    print(f"dead letter {letter.message.data.decode()!r}")
    for name, value in sorted(letter.message.attributes.items()):
        print(f"    {name} = {value}")
    subscriber.acknowledge(subscription=MORGUE, ack_ids=[letter.ack_id])


with pubsub_v1.PublisherClient() as publisher, pubsub_v1.SubscriberClient() as subscriber:
    clean_up()
    publisher.create_topic(name=ORDERS)
    publisher.create_topic(name=DEAD)
    # A dead-letter topic keeps letters for its subscriptions only: without one they would be gone.  And that one is
    # read seldom, so it must not expire.
    subscriber.create_subscription(
        request=Subscription(name=MORGUE, topic=DEAD, expiration_policy=ExpirationPolicy())
    )
    subscriber.create_subscription(
        request=Subscription(
            name=BILLING,
            topic=ORDERS,
            dead_letter_policy=DeadLetterPolicy(dead_letter_topic=DEAD, max_delivery_attempts=5),
        )
    )

    publisher.publish(ORDERS, b"an order nobody can read", customer="ada").result()
    for _ in range(5):
        received = next_of(BILLING)
        print(f"attempt {received.delivery_attempt} fails")
        subscriber.modify_ack_deadline(subscription=BILLING, ack_ids=[received.ack_id], ack_deadline_seconds=0)
    look_at_a_dead_letter()

    # Of this broker only: a receiver that knows that no other attempt will help says so at once.
    publisher.publish(ORDERS, b"an order for last year", customer="grace").result()
    rejected = next_of(BILLING)
    answer = httpx.post(f"http://{HOST}/v1/{BILLING}:reject", json={"ackIds": [rejected.ack_id]}, timeout=30)
    answer.raise_for_status()
    print(f"attempt {rejected.delivery_attempt} is rejected")
    look_at_a_dead_letter()
    clean_up()
