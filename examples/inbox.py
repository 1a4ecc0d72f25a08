"""An inbox for somebody who is seldom online: how many are unread, page by page, "mark all as read".

The unread count is a call of this broker's own (plain HTTP); all else is Google's.

python examples/inbox.py
"""

import contextlib
import os

import httpx
from google.api_core.exceptions import NotFound
from google.cloud import pubsub_v1
from google.pubsub_v1.types import ExpirationPolicy, Subscription

HOST = os.environ.setdefault("PUBSUB_EMULATOR_HOST", "127.0.0.1:8085")

TOPIC, INBOX = "projects/example-inbox/topics/messages-for-ada", "projects/example-inbox/subscriptions/ada"


def clean_up() -> None:
    with contextlib.suppress(NotFound):
        subscriber.delete_subscription(subscription=INBOX)
    with contextlib.suppress(NotFound):
        publisher.delete_topic(topic=TOPIC)


def show_position() -> None:
    position = broker.get(f"{INBOX}/snapshot").raise_for_status().json()
    [log] = position["shards"]
    print(f"{position['undeliveredMessages']} unread, next is {log['nextSequence']} of {log['headSequence']}")


def read_a_page(size: int) -> None:
    received = subscriber.pull(subscription=INBOX, max_messages=size).received_messages
    for message in received:
        print("   ", message.message.publish_time.strftime("%H:%M:%S"), message.message.data.decode())
    subscriber.acknowledge(subscription=INBOX, ack_ids=[m.ack_id for m in received])


with (
    pubsub_v1.PublisherClient() as publisher,
    pubsub_v1.SubscriberClient() as subscriber,
    httpx.Client(base_url=f"http://{HOST}/v1/", timeout=30) as broker,
):
    clean_up()
    publisher.create_topic(name=TOPIC)
    # Its owner may be away for long: it does not expire.
    subscriber.create_subscription(
        request=Subscription(name=INBOX, topic=TOPIC, expiration_policy=ExpirationPolicy())
    )
    for number in range(1, 8):
        publisher.publish(TOPIC, f"letter {number}".encode()).result()

    show_position()
    read_a_page(3)
    show_position()
    read_a_page(2)
    show_position()
    print("mark all as read")
    subscriber.seek(request={"subscription": INBOX, "time": "2100-01-01T00:00:00Z"})
    show_position()
    publisher.publish(TOPIC, b"letter 8").result()
    show_position()
    read_a_page(10)
    clean_up()
