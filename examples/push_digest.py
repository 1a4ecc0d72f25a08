"""A digest: many messages in one request to your webhook, and an answer that names those that failed.

pip install httpx
python examples/push_digest.py
"""

import base64
import json
import os
import queue
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

HOST = os.environ.get("PUBSUB_EMULATOR_HOST", "127.0.0.1:8085")
PROJECT = "projects/example-digest"
TOPIC, SUBSCRIPTION = f"{PROJECT}/topics/likes", f"{PROJECT}/subscriptions/mailer"

digests: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
failed_once: set[str] = set()


class Mailer(BaseHTTPRequestHandler):
    """The receiver: takes all messages of a request but the third, which it takes when it comes again."""

    def do_POST(self) -> None:
        messages = [
            m["message"] for m in json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"]
        ]
        failed = [m["messageId"] for m in messages if m["attributes"]["number"] == "3"]
        failed = [message_id for message_id in failed if message_id not in failed_once]
        failed_once.update(failed)
        answer = json.dumps({"failedMessageIds": failed}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
        digests.put(messages)

    def log_message(self, *_: object) -> None:
        """What is printed below is enough."""


with ThreadingHTTPServer(("127.0.0.1", 0), Mailer) as mailer, httpx.Client(timeout=30) as http:
    threading.Thread(target=mailer.serve_forever, daemon=True).start()
    broker = f"http://{HOST}/v1"

    http.delete(f"{broker}/{SUBSCRIPTION}")  # of a run before; 404 if there is none
    http.delete(f"{broker}/{TOPIC}")
    http.put(f"{broker}/{TOPIC}").raise_for_status()
    subscription = {
        "topic": TOPIC,
        "pushConfig": {"pushEndpoint": f"http://127.0.0.1:{mailer.server_port}/"},
        # A request goes out with five messages, or when the oldest has waited for half a second.
        "extensions": {"push": {"digest": {"maxMessages": 5, "maxDelay": "0.5s"}}},
    }
    http.put(f"{broker}/{SUBSCRIPTION}", json=subscription).raise_for_status()

    like = base64.b64encode(b"somebody likes your photo").decode()
    messages = [{"data": like, "attributes": {"number": str(number)}} for number in range(1, 8)]
    http.post(f"{broker}/{TOPIC}:publish", json={"messages": messages}).raise_for_status()

    received = 0
    while received < len(messages) + 1:  # one comes twice
        digest = digests.get(timeout=30)
        received += len(digest)
        print(f"one request with {len(digest)} messages:", [m["attributes"]["number"] for m in digest])

    http.delete(f"{broker}/{SUBSCRIPTION}").raise_for_status()
    http.delete(f"{broker}/{TOPIC}").raise_for_status()
    mailer.shutdown()
