"""The round of a first message with google-cloud-pubsub over its REST transport; the broker runs on port 8085."""

from google.auth.credentials import AnonymousCredentials
from google.pubsub_v1 import PublisherClient, SubscriberClient
from google.pubsub_v1.services.publisher.transports.rest import PublisherRestTransport
from google.pubsub_v1.services.subscriber.transports.rest import SubscriberRestTransport

broker = {"host": "127.0.0.1:8085", "url_scheme": "http", "credentials": AnonymousCredentials()}
publisher = PublisherClient(transport=PublisherRestTransport(**broker))
subscriber = SubscriberClient(transport=SubscriberRestTransport(**broker))

topic = publisher.create_topic(name="projects/demo/topics/python")
subscription = subscriber.create_subscription(name="projects/demo/subscriptions/python", topic=topic.name)
publisher.publish(topic=topic.name, messages=[{"data": b"hello", "attributes": {"lang": "en"}}])
response = subscriber.pull(subscription=subscription.name, max_messages=10)
for received in response.received_messages:
    print(received.message.data, dict(received.message.attributes))
subscriber.acknowledge(subscription=subscription.name, ack_ids=[m.ack_id for m in response.received_messages])
