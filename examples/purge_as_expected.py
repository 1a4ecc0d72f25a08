"""A preview says what a purge would drop, and the purge is refused if that has changed by then.

python examples/purge_as_expected.py
"""

import httpx
from plain_http import Broker

PROJECT = "projects/example-purge-as-expected"
TOPIC, SUB = f"{PROJECT}/topics/orders", f"{PROJECT}/subscriptions/worker"

with Broker(SUB, TOPIC) as broker:
    broker.call("PUT", TOPIC, {})
    broker.call("PUT", SUB, {"topic": TOPIC})
    broker.publish(TOPIC, "order 1")
    broker.publish(TOPIC, "order 2")

    preview = broker.call("POST", f"{SUB}:purge", {"validateOnly": True})
    print(f"a purge would drop {preview['count']} messages")

    broker.publish(TOPIC, "order 3")
    try:
        broker.call("POST", f"{SUB}:purge", {"expectedCount": preview["count"]})
    except httpx.HTTPStatusError as refused:
        print("refused:", refused.response.json()["error"]["message"])
    broker.call("POST", f"{SUB}:purge", {"expectedCount": preview["count"] + 1})
    print("left:", broker.pull(SUB))
