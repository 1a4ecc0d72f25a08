"""A publisher that got no answer publishes again: the repeat is not stored.

python examples/deduplication.py
"""

from plain_http import Broker

PROJECT = "projects/example-deduplication"
TOPIC, SUB = f"{PROJECT}/topics/orders", f"{PROJECT}/subscriptions/worker"

with Broker(SUB, TOPIC) as broker:
    broker.call("PUT", TOPIC, {"extensions": {"deduplication": {"window": "600s"}}})
    broker.call("PUT", SUB, {"topic": TOPIC})
    first = broker.publish(TOPIC, "paid", **{"broker-dedup-id": "payment-4711"})
    again = broker.publish(TOPIC, "paid", **{"broker-dedup-id": "payment-4711"})
    print("the same id:", first == again)
    print("got", broker.pull(SUB))
