"""The round of a first message with google-cloud-pubsub.

PUBSUB_EMULATOR_HOST=127.0.0.1:8085 python examples/first_message.py
"""

from google.cloud import pubsub_v1

publisher = pubsub_v1.PublisherClient()
subscriber = pubsub_v1.SubscriberClient()

topic = publisher.create_topic(name="projects/demo/topics/python")
subscription = subscriber.create_subscription(name="projects/demo/subscriptions/python", topic=topic.name)
print("published", publisher.publish(topic.name, b"hello", lang="en").result())

response = subscriber.pull(subscription=subscription.name, max_messages=10)
for received in response.received_messages:
    print(received.message.data, dict(received.message.attributes))
subscriber.acknowledge(subscription=subscription.name, ack_ids=[m.ack_id for m in response.received_messages])
