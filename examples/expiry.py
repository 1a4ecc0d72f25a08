"""Messages that are worthless after a while are not delivered any more then.

python examples/expiry.py
"""

import time

from plain_http import Broker

PROJECT = "projects/example-expiry"
TOPIC, SUB = f"{PROJECT}/topics/orders", f"{PROJECT}/subscriptions/worker"

with Broker(SUB, TOPIC) as broker:
    broker.call("PUT", TOPIC, {"extensions": {"expiry": True}})
    broker.call("PUT", SUB, {"topic": TOPIC})
    broker.publish(TOPIC, "a price of a second", **{"broker-ttl": "1s"})
    broker.publish(TOPIC, "a price of an hour", **{"broker-ttl": "3600s"})
    time.sleep(1.5)
    print("got", broker.pull(SUB))
