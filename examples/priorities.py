"""The most urgent messages are delivered first, however many others wait.

python examples/priorities.py
"""

from plain_http import Broker

PROJECT = "projects/example-priorities"
TOPIC, SUB = f"{PROJECT}/topics/orders", f"{PROJECT}/subscriptions/worker"

with Broker(SUB, TOPIC) as broker:
    broker.call("PUT", TOPIC, {"extensions": {"priorities": 3}})  # 0 is the most urgent, 2 the least
    broker.call("PUT", SUB, {"topic": TOPIC})
    broker.publish(TOPIC, "a newsletter")
    broker.publish(TOPIC, "a receipt", **{"broker-priority": "1"})
    broker.publish(TOPIC, "an alarm", **{"broker-priority": "0"})
    print("got", broker.pull(SUB, most=1))
