"""Messages that the broker publishes itself, by cron or at an interval: once for each tick.

python examples/schedules.py
"""

import base64
import os
from typing import Any

import httpx

HOST = os.environ.get("PUBSUB_EMULATOR_HOST", "127.0.0.1:8085")
PROJECT = "projects/example-schedules"
TOPIC, SUB = f"{PROJECT}/topics/orders", f"{PROJECT}/subscriptions/worker"
NIGHTLY = f"{PROJECT}/schedules/nightly"
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
    for name in (NIGHTLY, SUB, TOPIC):
        broker.delete(name)  # 404 if there is none


clean_up()
call("PUT", TOPIC, {})
call("PUT", SUB, {"topic": TOPIC})
template = {"data": base64.b64encode(b"close the books of {{time}}").decode()}
call(
    "PUT",
    NIGHTLY,
    {"topic": TOPIC, "template": template, "schedule": "30 2 * * *", "timeZone": "Europe/Berlin"},
)
for tick in call("GET", f"{NIGHTLY}:next?pageSize=2")["times"]:
    print("next:", tick)
call("POST", f"{NIGHTLY}:run", {})  # one tick more, now
while not (came := pull()):
    pass
print("got", came)
clean_up()
broker.close()
