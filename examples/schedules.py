"""Messages that the broker publishes itself, by cron or at an interval: once for each tick.

python examples/schedules.py
"""

import base64

from plain_http import Broker

PROJECT = "projects/example-schedules"
TOPIC, SUB = f"{PROJECT}/topics/orders", f"{PROJECT}/subscriptions/worker"
NIGHTLY = f"{PROJECT}/schedules/nightly"

with Broker(NIGHTLY, SUB, TOPIC) as broker:
    broker.call("PUT", TOPIC, {})
    broker.call("PUT", SUB, {"topic": TOPIC})
    template = {"data": base64.b64encode(b"close the books of {{time}}").decode()}
    broker.call(
        "PUT",
        NIGHTLY,
        {"topic": TOPIC, "template": template, "schedule": "30 2 * * *", "timeZone": "Europe/Berlin"},
    )
    for tick in broker.call("GET", f"{NIGHTLY}:next?pageSize=2")["times"]:
        print("next:", tick)
    broker.call("POST", f"{NIGHTLY}:run", {})  # one tick more, now
    while not (came := broker.pull(SUB)):
        pass
    print("got", came)
