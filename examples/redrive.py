"""Dead letters come back to the subscription that gave them up, once it is repaired.

python examples/redrive.py
"""

import base64
import os
import time
from typing import Any

import httpx

HOST = os.environ.get("PUBSUB_EMULATOR_HOST", "127.0.0.1:8085")
PROJECT = "projects/example-redrive"
TOPIC, SUB = f"{PROJECT}/topics/orders", f"{PROJECT}/subscriptions/worker"
DEAD = f"{PROJECT}/topics/dead"
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
    for name in (SUB, TOPIC, DEAD):
        broker.delete(name)  # 404 if there is none


clean_up()
for topic in (TOPIC, DEAD):
    call("PUT", topic, {})
policy = {"deadLetterTopic": DEAD, "maxDeliveryAttempts": 5}
call("PUT", SUB, {"topic": TOPIC, "deadLetterPolicy": policy})
publish("order 1")
while not (got := call("POST", f"{SUB}:pull", {"maxMessages": 1}).get("receivedMessages")):
    pass
call("POST", f"{SUB}:reject", {"ackIds": [got[0]["ackId"]]})  # no other attempt would help
while not (letters := call("GET", f"{SUB}/deadLetters").get("deadLetters")):
    time.sleep(0.2)
print(f"{len(letters)} dead letter, because of {letters[0]['reason']}")

operation = call("POST", f"{SUB}:redrive", {})
done = call("POST", f"{operation['name']}:wait", {})
print("redriven:", done["metadata"]["counts"])
while not (came := pull()):
    pass
print("got", came)
call("DELETE", operation["name"])
clean_up()
broker.close()
