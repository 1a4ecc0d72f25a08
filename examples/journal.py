"""The journal of a subscription records what happened to a message, and when.

python examples/journal.py
"""

import time

from plain_http import Broker

PROJECT = "projects/example-journal"
TOPIC, SUB = f"{PROJECT}/topics/orders", f"{PROJECT}/subscriptions/worker"

with Broker(SUB, TOPIC) as broker:
    broker.call("PUT", TOPIC, {})
    broker.call("PUT", SUB, {"topic": TOPIC, "extensions": {"journal": {"mode": "ALL", "retention": "86400s"}}})
    [message_id] = broker.publish(TOPIC, "order 1")
    while not broker.pull(SUB):
        pass
    while len((reported := broker.call("GET", f"{SUB}/messages/{message_id}"))["timeline"]) < 2:
        time.sleep(0.2)
    print(reported["verdict"])
    for entry in reported["timeline"]:
        print(entry["event"])
