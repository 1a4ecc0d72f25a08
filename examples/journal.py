"""What happened to a message, and when: the journal of a subscription writes it down.

python examples/journal.py
"""

import base64
import os
import time
from typing import Any

import httpx

HOST = os.environ.get("PUBSUB_EMULATOR_HOST", "127.0.0.1:8085")
PROJECT = "projects/example-journal"
TOPIC, SUB = f"{PROJECT}/topics/orders", f"{PROJECT}/subscriptions/worker"
broker = httpx.Client(base_url=f"http://{HOST}/v1/", timeout=60)


def call(method: str, path: str, body: object = None) -> Any:
    return broker.request(method, path, json=body).raise_for_status().json()


def publish(*texts: str, **attributes: str) -> list[str]:
    messages = [{"data": base64.b64encode(text.encode()).decode(), "attributes": attributes} for text in texts]
    ids: list[str] = call("POST", f"{TOPIC}:publish", {"messages": messages})["messageIds"]
    return ids


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
    for name in (SUB, TOPIC):
        broker.delete(name)  # 404 if there is none


clean_up()
call("PUT", TOPIC, {})
call("PUT", SUB, {"topic": TOPIC, "extensions": {"journal": {"mode": "ALL", "retention": "86400s"}}})
[message_id] = publish("order 1")
while not pull():
    pass
while len((told := call("GET", f"{SUB}/messages/{message_id}"))["timeline"]) < 2:
    time.sleep(0.2)
print(told["verdict"])
for entry in told["timeline"]:
    print(entry["event"])
clean_up()
broker.close()
