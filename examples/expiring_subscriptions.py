"""Subscriptions that go when nobody uses them, and one that stays.

A subscription that is not used for its ttl is deleted with its backlog; 31 days unless it says otherwise.

python examples/expiring_subscriptions.py
"""

import contextlib
import os

from google.api_core.exceptions import InvalidArgument, NotFound
from google.cloud import pubsub_v1
from google.protobuf.duration_pb2 import Duration
from google.pubsub_v1.types import ExpirationPolicy, Subscription

os.environ.setdefault("PUBSUB_EMULATOR_HOST", "127.0.0.1:8085")

PROJECT = "projects/example-expiry"
TOPIC = f"{PROJECT}/topics/news"
DAY = 86_400  # seconds; a ttl is at least that

POLICIES = {
    "usual": None,  # 31 days
    "session": ExpirationPolicy(ttl=Duration(seconds=DAY)),  # a browser's, a test's: gone a day after its last use
    "archive": ExpirationPolicy(),  # without a ttl: never
}


def clean_up() -> None:
    for name in POLICIES:
        with contextlib.suppress(NotFound):
            subscriber.delete_subscription(subscription=f"{PROJECT}/subscriptions/{name}")
    with contextlib.suppress(NotFound):
        publisher.delete_topic(topic=TOPIC)


with pubsub_v1.PublisherClient() as publisher, pubsub_v1.SubscriberClient() as subscriber:
    clean_up()
    publisher.create_topic(name=TOPIC)
    for name, policy in POLICIES.items():
        wanted = Subscription(name=f"{PROJECT}/subscriptions/{name}", topic=TOPIC, expiration_policy=policy)
        made = subscriber.create_subscription(request=wanted)
        ttl, kept = made.expiration_policy.ttl, made.message_retention_duration
        expires = f"{ttl.days} days after its last use" if ttl else "never"
        print(f"{name:8} expires {expires}; keeps messages for {kept.days} days")

    too_short = Subscription(
        name=f"{PROJECT}/subscriptions/hasty", topic=TOPIC, expiration_policy={"ttl": Duration(seconds=60)}
    )
    try:
        subscriber.create_subscription(request=too_short)
    except InvalidArgument as error:
        print("refused:", error.message)
    # Use is to pull, acknowledge, seek or change it.  To look at it is none, nor is to publish to its topic.
    clean_up()
