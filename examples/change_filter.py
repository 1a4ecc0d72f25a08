"""A subscription gets another filter: for messages published from then on, and not for earlier ones.

python examples/change_filter.py
"""

import base64
import os
from typing import Any

import httpx

HOST = os.environ.get("PUBSUB_EMULATOR_HOST", "127.0.0.1:8085")
PROJECT = "projects/example-change-filter"
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
call("PUT", SUB, {"topic": TOPIC, "filter": 'attributes.country = "de"'})
publish("order 1", country="de")
publish("order 2", country="fr")

wanted = 'attributes.country = "fr"'
preview = call("POST", f"{SUB}:setFilter", {"filter": wanted, "validateOnly": True})["preview"]
print(f"of {preview['scannedMessageCount']} messages it would match {preview['newlyMatchedMessageCount']} others")
changed = call("POST", f"{SUB}:setFilter", {"filter": wanted})
print(f"changed from {changed['previousFilter']!r}")
publish("order 3", country="de")
publish("order 4", country="fr")
print("got", sorted(pull()))  # order 1 by the old filter, order 4 by the new one
clean_up()
broker.close()
