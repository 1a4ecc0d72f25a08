"""A topic with a schema takes only messages that are like it.

python examples/schemas.py
"""

import json

import httpx
from plain_http import Broker

PROJECT = "projects/example-schemas"
TOPIC, SUB = f"{PROJECT}/topics/orders", f"{PROJECT}/subscriptions/worker"
SCHEMA = f"{PROJECT}/schemas/order"

with Broker(SUB, TOPIC, SCHEMA) as broker:
    fields = [{"name": "id", "type": "string"}, {"name": "total", "type": "double"}]
    definition = json.dumps({"type": "record", "name": "Order", "fields": fields})
    broker.call("POST", f"{PROJECT}/schemas?schemaId=order", {"type": "AVRO", "definition": definition})
    broker.call("PUT", TOPIC, {"schemaSettings": {"schema": SCHEMA, "encoding": "JSON"}})
    broker.call("PUT", SUB, {"topic": TOPIC})
    broker.publish(TOPIC, json.dumps({"id": "A-17", "total": 12.4}))
    try:
        broker.publish(TOPIC, json.dumps({"id": "A-18", "total": "much"}))
    except httpx.HTTPStatusError as error:
        print("refused:", error.response.json()["error"]["message"])
    print("got", broker.pull(SUB))
