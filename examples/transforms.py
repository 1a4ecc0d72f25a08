"""Transforms change messages before their delivery: fields are masked, tests are dropped.

python examples/transforms.py
"""

import json

from plain_http import Broker

PROJECT = "projects/example-transforms"
TOPIC, SUB = f"{PROJECT}/topics/orders", f"{PROJECT}/subscriptions/worker"

with Broker(SUB, TOPIC) as broker:
    broker.call("PUT", TOPIC, {})
    code = """function withoutTests(message, metadata) {
    return JSON.parse(message.data).test ? null : message;
}"""
    transforms = [
        {"javascriptUdf": {"functionName": "withoutTests", "code": code}},
        {"fields": {"mask": ["body.card"], "maskWith": "****"}},
    ]
    broker.call("PUT", SUB, {"topic": TOPIC, "messageTransforms": transforms})
    broker.publish(TOPIC, json.dumps({"id": 1, "card": "4111"}), json.dumps({"id": 2, "test": True}))
    print("got", broker.pull(SUB))
