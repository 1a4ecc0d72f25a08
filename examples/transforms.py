"""What a subscription is delivered is changed on the way: fields are masked, tests are dropped.

python examples/transforms.py
"""

import base64
import json
import os
from typing import Any

import httpx

HOST = os.environ.get("PUBSUB_EMULATOR_HOST", "127.0.0.1:8085")
PROJECT = "projects/example-transforms"
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
code = """function withoutTests(message, metadata) {
    return JSON.parse(message.data).test ? null : message;
}"""
transforms = [
    {"javascriptUdf": {"functionName": "withoutTests", "code": code}},
    {"fields": {"mask": ["body.card"], "maskWith": "****"}},
]
call("PUT", SUB, {"topic": TOPIC, "messageTransforms": transforms})
publish(json.dumps({"id": 1, "card": "4111"}), json.dumps({"id": 2, "test": True}))
print("got", pull())
clean_up()
broker.close()
