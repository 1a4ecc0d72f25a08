"""A program as they are written for Google's service: it knows a project, and its environment says where that is.

Creates, publishes, receives, stops, deletes; prints what it saw as one line of JSON.
"""

import json
import sys
import threading
from concurrent.futures import TimeoutError as Timeout

from google.cloud import pubsub_v1

COUNT = 120


def publish(project: str) -> list[str]:
    """The message ids, which callbacks are told of."""
    publisher = pubsub_v1.PublisherClient()
    topic = publisher.topic_path(project, "greetings")
    ids: list[str] = []
    futures = []
    for number in range(COUNT):
        future = publisher.publish(topic, f"hello {number}".encode(), origin="quickstart", number=str(number))
        future.add_done_callback(lambda done: ids.append(done.result()))
        futures.append(future)
    for future in futures:
        future.result(timeout=30)
    publisher.stop()
    return ids


def receive(project: str) -> tuple[list[str], list[str]]:
    """The message ids and the texts that a handler was given before it was stopped."""
    ids: list[str] = []
    texts: list[str] = []
    lock, all_there = threading.Lock(), threading.Event()

    def callback(message: pubsub_v1.subscriber.message.Message) -> None:
        with lock:
            ids.append(message.message_id)
            texts.append(f"{message.data.decode()} {message.attributes['origin']}")
            if len(ids) == COUNT:
                all_there.set()
        message.ack()

    with pubsub_v1.SubscriberClient() as subscriber:
        future = subscriber.subscribe(subscriber.subscription_path(project, "readers"), callback=callback)
        all_there.wait(30)
        try:
            future.result(timeout=0.1)  # nothing ends it but the program
        except Timeout:
            future.cancel()
            future.result(timeout=30)
    return ids, texts


def main(project: str) -> None:
    publisher, subscriber = pubsub_v1.PublisherClient(), pubsub_v1.SubscriberClient()
    topic = publisher.topic_path(project, "greetings")
    subscription = subscriber.subscription_path(project, "readers")
    publisher.create_topic(request={"name": topic})
    subscriber.create_subscription(request={"name": subscription, "topic": topic})
    published = publish(project)
    received, texts = receive(project)
    seen = {
        "topics": [found.name for found in publisher.list_topics(request={"project": f"projects/{project}"})],
        "same_ids": sorted(published) == sorted(received),
        "texts": sorted(set(texts)),
    }
    subscriber.delete_subscription(request={"subscription": subscription})
    publisher.delete_topic(request={"topic": topic})
    subscriber.close()
    print(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1])
