"""The broker publishes its events to a topic: here, that a subscription was paused.

python examples/events.py
"""

import json
import time

from plain_http import Broker

PROJECT = "projects/example-events"
TOPIC, SUB = f"{PROJECT}/topics/orders", f"{PROJECT}/subscriptions/worker"
EVENTS, ALARM = f"{PROJECT}/topics/events", f"{PROJECT}/subscriptions/alarm"

with Broker(ALARM, EVENTS, SUB, TOPIC) as broker:
    for topic, subscription in ((TOPIC, SUB), (EVENTS, ALARM)):
        broker.call("PUT", topic, {})
        broker.call("PUT", subscription, {"topic": topic})
    broker.call("PATCH", f"{PROJECT}/settings", {"eventTopic": EVENTS})
    broker.call("POST", f"{SUB}:pause", {"reason": "The database is moved."})
    while not (reported := broker.pull(ALARM)):  # a look every five seconds finds it
        time.sleep(0.5)
    event = json.loads(reported[0])
    print(event["type"], event["subject"], event["reason"])
    broker.call("PATCH", f"{PROJECT}/settings", {"eventTopic": ""})
