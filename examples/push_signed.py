"""A webhook that knows who calls: signed pushes, verified with the package standardwebhooks.

The broker signs each request with a secret that only you and it know, as https://www.standardwebhooks.com says.

pip install httpx standardwebhooks
python examples/push_signed.py
"""

import base64
import json
import os
import secrets
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
from standardwebhooks import Webhook, WebhookVerificationError

HOST = os.environ.get("PUBSUB_EMULATOR_HOST", "127.0.0.1:8085")
PROJECT = "projects/example-signed-push"
TOPIC, SUBSCRIPTION = f"{PROJECT}/topics/orders", f"{PROJECT}/subscriptions/shop"

SECRET = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
arrived = threading.Event()


class Shop(BaseHTTPRequestHandler):
    """The receiver."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            Webhook(SECRET).verify(body, dict(self.headers))  # also refuses what is older than five minutes
        except WebhookVerificationError as error:
            print("a stranger is refused:", error)
            self.send_response(401)
            self.end_headers()
            return
        message = json.loads(body)["message"]
        print("verified:", base64.b64decode(message["data"]).decode())
        # Whoever gets the same twice can tell by this, which is the same for every attempt.
        print("    webhook-id", self.headers["webhook-id"])
        self.send_response(204)  # a success status is the ack
        self.end_headers()
        arrived.set()

    def log_message(self, *_: object) -> None:
        """What is printed above is enough."""


# The broker must be able to reach this address: if it runs elsewhere, use one that it knows.
with ThreadingHTTPServer(("127.0.0.1", 0), Shop) as shop, httpx.Client(timeout=30) as http:
    threading.Thread(target=shop.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{shop.server_port}/orders"
    broker = f"http://{HOST}/v1"

    http.delete(f"{broker}/{SUBSCRIPTION}")  # of a run before; 404 if there is none
    http.delete(f"{broker}/{TOPIC}")
    http.put(f"{broker}/{TOPIC}").raise_for_status()
    subscription = {
        "topic": TOPIC,
        "pushConfig": {"pushEndpoint": endpoint},
        "extensions": {"push": {"webhookSecrets": [SECRET]}},  # Google's client does not know this field
    }
    http.put(f"{broker}/{SUBSCRIPTION}", json=subscription).raise_for_status()

    message = {"data": base64.b64encode(b"order 1").decode()}
    http.post(f"{broker}/{TOPIC}:publish", json={"messages": [message]}).raise_for_status()
    assert arrived.wait(30), "nothing was pushed"

    forged = {"webhook-id": "1", "webhook-timestamp": str(int(time.time())), "webhook-signature": "v1,bm8="}
    http.post(endpoint, json={"message": message}, headers=forged)

    http.delete(f"{broker}/{SUBSCRIPTION}").raise_for_status()
    http.delete(f"{broker}/{TOPIC}").raise_for_status()
    shop.shutdown()
