"""Messages that are worthless after a while are not delivered any more then.

python examples/expiry.py
"""

import base64
import os
import time
from typing import Any

import httpx

HOST = os.environ.get("PUBSUB_EMULATOR_HOST", "127.0.0.1:8085")
PROJECT = "projects/example-expiry"
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
call("PUT", TOPIC, {"extensions": {"expiry": True}})
call("PUT", SUB, {"topic": TOPIC})
publish("a price of a second", **{"broker-ttl": "1s"})
publish("a price of an hour", **{"broker-ttl": "3600s"})
time.sleep(1.5)
print("got", pull())
clean_up()
broker.close()
