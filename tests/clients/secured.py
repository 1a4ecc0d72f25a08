"""A program as they are written for Google's service, whose environment has a key file.

Arguments: endpoint, transport, project.  Creates, publishes, receives; prints what it received.
"""

import queue
import sys

from google.cloud import pubsub_v1

SECONDS = 60


def main(endpoint: str, transport: str, project: str) -> None:
    options = {"api_endpoint": endpoint if transport == "grpc" else f"https://{endpoint}"}
    publisher = pubsub_v1.PublisherClient(client_options=options, transport=transport)
    subscriber = pubsub_v1.SubscriberClient(client_options=options, transport=transport)
    topic, name = publisher.topic_path(project, transport), subscriber.subscription_path(project, transport)
    publisher.create_topic(name=topic)
    subscriber.create_subscription(name=name, topic=topic)
    publisher.publish(topic, b"hello").result(SECONDS)
    if transport == "grpc":
        received: queue.Queue[bytes] = queue.Queue()
        stream = subscriber.subscribe(name, callback=lambda message: (message.ack(), received.put(message.data)))
        print(received.get(timeout=SECONDS).decode())
        stream.cancel()
        stream.result(SECONDS)
    else:
        [message] = subscriber.pull(subscription=name, max_messages=1).received_messages
        subscriber.acknowledge(subscription=name, ack_ids=[message.ack_id])
        print(message.message.data.decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
