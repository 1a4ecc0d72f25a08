"""Messages as they come, by streaming pull; Ctrl-C ends it.

PUBSUB_EMULATOR_HOST=127.0.0.1:8085 python examples/subscribe.py
"""

import contextlib

from google.api_core.exceptions import AlreadyExists
from google.cloud import pubsub_v1
from google.cloud.pubsub_v1.subscriber.message import Message

TOPIC, SUBSCRIPTION = "projects/demo/topics/greetings", "projects/demo/subscriptions/stream"

with pubsub_v1.SubscriberClient() as subscriber:
    with contextlib.suppress(AlreadyExists):
        subscriber.create_subscription(name=SUBSCRIPTION, topic=TOPIC)

    def handle(message: Message) -> None:
        print(message.message_id, message.data, dict(message.attributes), flush=True)
        message.ack()

    receiving = subscriber.subscribe(SUBSCRIPTION, callback=handle)
    print(f"listening on {SUBSCRIPTION}", flush=True)
    try:
        receiving.result()
    except KeyboardInterrupt:
        receiving.cancel()
        receiving.result()
