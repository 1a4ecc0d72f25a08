"""A webhook in trouble: what failed, the circuit breaker that opens, a pause, and going on.

pip install httpx
python examples/push_trouble.py
"""

import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

HOST = os.environ.get("PUBSUB_EMULATOR_HOST", "127.0.0.1:8085")
PROJECT = "projects/example-trouble"
TOPIC, SUBSCRIPTION = f"{PROJECT}/topics/orders", f"{PROJECT}/subscriptions/shop"

repaired, arrived = threading.Event(), threading.Event()


class Shop(BaseHTTPRequestHandler):
    """The receiver, which fails until it is repaired."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        answer = b"" if repaired.is_set() else b"the shop's database is full"
        self.send_response(500 if answer else 200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
        if not answer:
            arrived.set()

    def log_message(self, *_: object) -> None:
        """What is printed below is enough."""


with (
    ThreadingHTTPServer(("127.0.0.1", 0), Shop) as shop,
    httpx.Client(base_url=f"http://{HOST}/v1/", timeout=30) as broker,
):
    threading.Thread(target=shop.serve_forever, daemon=True).start()

    def status() -> Any:
        return broker.get(f"{SUBSCRIPTION}:pushStatus").raise_for_status().json()

    broker.delete(SUBSCRIPTION)  # of a run before; 404 if there is none
    broker.delete(TOPIC)
    broker.put(TOPIC).raise_for_status()
    subscription = {
        "topic": TOPIC,
        "pushConfig": {"pushEndpoint": f"http://127.0.0.1:{shop.server_port}/"},
        # After three failures in a row nothing is sent for an hour (20 and 30 s unless you say otherwise).
        "extensions": {"push": {"circuitBreaker": {"failureThreshold": 3, "openDuration": "3600s"}}},
    }
    broker.put(SUBSCRIPTION, json=subscription).raise_for_status()
    messages = [{"attributes": {"order": str(number)}} for number in range(3)]
    broker.post(f"{TOPIC}:publish", json={"messages": messages}).raise_for_status()

    # Both are written down about once a second.
    while (now := status()).get("circuitBreaker", {}).get("state") != "OPEN":
        time.sleep(0.1)
    print(f"the breaker is {now['circuitBreaker']['state']}; nothing is sent before {now['retryTime']}")
    while not (failures := broker.get(f"{SUBSCRIPTION}:pushFailures").raise_for_status().json()):
        time.sleep(0.1)
    newest = failures["pushFailures"][0]
    print(
        f"message {newest['messageId']}, attempt {newest['deliveryAttempt']}:", newest["status"], newest["detail"]
    )

    broker.post(f"{SUBSCRIPTION}:pausePush", json={"reason": "the shop is being repaired"}).raise_for_status()
    print("paused:", status())

    repaired.set()
    broker.post(f"{SUBSCRIPTION}:resumePush").raise_for_status()  # begins anew: with a closed breaker, at once
    assert arrived.wait(30), "nothing was pushed"
    while (now := status())["state"] != "ACTIVE":
        time.sleep(0.1)
    print("resumed, and delivered:", now["state"])

    broker.delete(SUBSCRIPTION).raise_for_status()
    broker.delete(TOPIC).raise_for_status()
    shop.shutdown()
