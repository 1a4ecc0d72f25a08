"""A message that should not have been published is withdrawn, for all subscriptions.

python examples/retraction.py
"""

from plain_http import Broker

PROJECT = "projects/example-retraction"
TOPIC, SUB = f"{PROJECT}/topics/orders", f"{PROJECT}/subscriptions/worker"

with Broker(SUB, TOPIC) as broker:
    broker.call("PUT", TOPIC, {})
    broker.call("PUT", SUB, {"topic": TOPIC})
    right, wrong = broker.publish(TOPIC, "12.40", "1240.00")
    answer = broker.call("POST", f"{TOPIC}:retract", {"messageIds": [wrong]})
    print("outcome:", answer["results"][0]["outcome"])
    print("got", broker.pull(SUB))
