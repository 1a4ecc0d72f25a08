"""Filters: a subscription that gets only the messages that it asks for, by their attributes.

python examples/filters.py
"""

import contextlib
import os

from google.api_core.exceptions import InvalidArgument, NotFound
from google.cloud import pubsub_v1
from google.pubsub_v1.types import Subscription

os.environ.setdefault("PUBSUB_EMULATOR_HOST", "127.0.0.1:8085")

PROJECT = "projects/example-filters"
TOPIC = f"{PROJECT}/topics/orders"
FILTERS = {
    "everything": "",
    "germany": 'attributes.country = "de"',
    "abroad": 'attributes.country != "de"',  # an order without a country, too
    "urgent": "attributes:priority",  # has such an attribute, whatever its value
    "books": 'hasPrefix(attributes.sku, "book-") AND NOT attributes.country = "fr"',
}
ORDERS = [
    {"country": "de", "sku": "book-1"},
    {"country": "fr", "sku": "book-2", "priority": "high"},
    {"country": "it", "sku": "lamp-1"},
    {"sku": "book-3"},
]


def clean_up() -> None:
    for name in FILTERS:
        with contextlib.suppress(NotFound):
            subscriber.delete_subscription(subscription=f"{PROJECT}/subscriptions/{name}")
    with contextlib.suppress(NotFound):
        publisher.delete_topic(topic=TOPIC)


with pubsub_v1.PublisherClient() as publisher, pubsub_v1.SubscriberClient() as subscriber:
    clean_up()
    publisher.create_topic(name=TOPIC)
    for name, text in FILTERS.items():
        subscription = Subscription(name=f"{PROJECT}/subscriptions/{name}", topic=TOPIC, filter=text)
        subscriber.create_subscription(request=subscription)

    for number, attributes in enumerate(ORDERS, 1):
        publisher.publish(TOPIC, b"order %d" % number, **attributes).result()
        print(f"published order {number} {attributes}")

    for name, text in FILTERS.items():
        response = subscriber.pull(subscription=f"{PROJECT}/subscriptions/{name}", max_messages=10)
        got = sorted(received.message.data.decode() for received in response.received_messages)
        print(f"{name:10} [{text or 'no filter'}] got {got}")

    try:  # a filter is set when the subscription is made; one that is wrong is refused then, with the place
        wrong = Subscription(
            name=f"{PROJECT}/subscriptions/wrong", topic=TOPIC, filter='attributes.country == "de"'
        )
        subscriber.create_subscription(request=wrong)
    except InvalidArgument as error:
        print("refused:", error.message)
    clean_up()
