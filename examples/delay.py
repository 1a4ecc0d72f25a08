"""A message that is delivered later; until then it can be listed, put off and cancelled.

python examples/delay.py
"""

import time

from plain_http import Broker

PROJECT = "projects/example-delay"
TOPIC, SUB = f"{PROJECT}/topics/orders", f"{PROJECT}/subscriptions/worker"

with Broker(SUB, TOPIC) as broker:
    broker.call("PUT", TOPIC, {"extensions": {"delay": True}})
    broker.call("PUT", SUB, {"topic": TOPIC})
    broker.publish(TOPIC, "now")
    [later] = broker.publish(TOPIC, "an hour later", **{"broker-delay": "3600s"})
    [never] = broker.publish(TOPIC, "never", **{"broker-delay": "3600s"})
    print("at once:", broker.pull(SUB))

    for waiting in broker.call("GET", f"{TOPIC}/scheduled")["scheduledMessages"]:
        print("to be published at", waiting["deliverTime"])
    broker.call("DELETE", f"{TOPIC}/scheduled/{never}")
    past = "2026-01-01T08:00:00Z"  # so it is delivered now
    broker.call("PATCH", f"{TOPIC}/scheduled/{later}", {"deliverTime": past})
    while not (came := broker.pull(SUB)):
        time.sleep(0.2)
    print("later:", came)
