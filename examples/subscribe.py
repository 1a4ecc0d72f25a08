"""Receive messages by streaming pull, until Ctrl-C.

python examples/subscribe.py
"""

import contextlib
import os

from google.api_core.exceptions import AlreadyExists
from google.cloud import pubsub_v1
from google.cloud.pubsub_v1.subscriber.message import Message

os.environ.setdefault("PUBSUB_EMULATOR_HOST", "127.0.0.1:8085")

TOPIC, SUBSCRIPTION = "projects/demo/topics/greetings", "projects/demo/subscriptions/stream"


def handle(message: Message) -> None:
    print("received", message.message_id, message.data, dict(message.attributes), flush=True)
    message.ack()


with pubsub_v1.PublisherClient() as publisher, pubsub_v1.SubscriberClient() as subscriber:
    with contextlib.suppress(AlreadyExists):
        publisher.create_topic(name=TOPIC)
    with contextlib.suppress(AlreadyExists):
        subscriber.create_subscription(name=SUBSCRIPTION, topic=TOPIC)

    receiving = subscriber.subscribe(SUBSCRIPTION, callback=handle)
    print(f"listening on {SUBSCRIPTION}; Ctrl-C ends", flush=True)
    try:
        while not receiving.done():
            with contextlib.suppress(TimeoutError):  # while it waits, Python may not notice a Ctrl-C
                receiving.result(timeout=1)
    except KeyboardInterrupt:
        receiving.cancel()
        receiving.result()
