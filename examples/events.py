"""What an operator wants to know becomes a message on a topic: here, that a subscription was paused.

python examples/events.py
"""

import base64
import json
import os
import time
from typing import Any

import httpx

HOST = os.environ.get("PUBSUB_EMULATOR_HOST", "127.0.0.1:8085")
PROJECT = "projects/example-events"
TOPIC, SUB = f"{PROJECT}/topics/orders", f"{PROJECT}/subscriptions/worker"
EVENTS, ALARM = f"{PROJECT}/topics/events", f"{PROJECT}/subscriptions/alarm"
broker = httpx.Client(base_url=f"http://{HOST}/v1/", timeout=60)


def call(method: str, path: str, body: object = None) -> Any:
    return broker.request(method, path, json=body).raise_for_status().json()


def pull(subscription: str = SUB, most: int = 100) -> list[str]:
    """The texts of what is outstanding now, acknowledged."""
    texts: list[str] = []
    while got := call("POST", f"{subscription}:pull", {"maxMessages": most, "returnImmediately": True}).get(
        "receivedMessages"
    ):
        call("POST", f"{subscription}:acknowledge", {"ackIds": [each["ackId"] for each in got]})
        texts += [base64.b64decode(each["message"].get("data", "")).decode() for each in got]
    return texts


def clean_up() -> None:
    for name in (ALARM, EVENTS, SUB, TOPIC):
        broker.delete(name)  # 404 if there is none


clean_up()
for topic, subscription in ((TOPIC, SUB), (EVENTS, ALARM)):
    call("PUT", topic, {})
    call("PUT", subscription, {"topic": topic})
call("PATCH", f"{PROJECT}/settings", {"eventTopic": EVENTS})
call("POST", f"{SUB}:pause", {"reason": "The database is moved."})
while not (told := pull(ALARM)):  # a look every five seconds finds it
    time.sleep(0.5)
event = json.loads(told[0])
print(event["type"], event["subject"], event["reason"])
call("PATCH", f"{PROJECT}/settings", {"eventTopic": ""})
clean_up()
broker.close()
