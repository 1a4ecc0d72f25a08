"""The most urgent messages are delivered first, however many others wait.

python examples/priorities.py
"""

import base64
import os
from typing import Any

import httpx

HOST = os.environ.get("PUBSUB_EMULATOR_HOST", "127.0.0.1:8085")
PROJECT = "projects/example-priorities"
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
call("PUT", TOPIC, {"extensions": {"priorities": 3}})  # 0 is the most urgent, 2 the least
call("PUT", SUB, {"topic": TOPIC})
publish("a newsletter")
publish("a receipt", **{"broker-priority": "1"})
publish("an alarm", **{"broker-priority": "0"})
print("got", pull(most=1))
clean_up()
broker.close()
