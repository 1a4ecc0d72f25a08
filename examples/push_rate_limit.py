"""A webhook that takes only so much: a rate, and so many requests at a time.  The rest waits; nothing is lost.

pip install httpx
python examples/push_rate_limit.py
"""

import os
import queue
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

HOST = os.environ.get("PUBSUB_EMULATOR_HOST", "127.0.0.1:8085")
PROJECT = "projects/example-rate-limit"
TOPIC, SUBSCRIPTION = f"{PROJECT}/topics/jobs", f"{PROJECT}/subscriptions/slow-shop"
PER_SECOND, COUNT = 10, 20

times: queue.SimpleQueue[float] = queue.SimpleQueue()


class SlowShop(BaseHTTPRequestHandler):
    """The receiver."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        times.put(time.monotonic())
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """What is printed below is enough."""


with ThreadingHTTPServer(("127.0.0.1", 0), SlowShop) as shop, httpx.Client(timeout=30) as http:
    threading.Thread(target=shop.serve_forever, daemon=True).start()
    broker = f"http://{HOST}/v1"

    http.delete(f"{broker}/{SUBSCRIPTION}")  # of a run before; 404 if there is none
    http.delete(f"{broker}/{TOPIC}")
    http.put(f"{broker}/{TOPIC}").raise_for_status()
    subscription = {
        "topic": TOPIC,
        "pushConfig": {"pushEndpoint": f"http://127.0.0.1:{shop.server_port}/"},
        "extensions": {"push": {"messagesPerSecond": PER_SECOND, "maxOutstandingRequests": 2}},
    }
    http.put(f"{broker}/{SUBSCRIPTION}", json=subscription).raise_for_status()

    messages = [{"attributes": {"job": str(number)}} for number in range(COUNT)]
    http.post(f"{broker}/{TOPIC}:publish", json={"messages": messages}).raise_for_status()
    print(f"published {COUNT} messages at once")
    arrived = [times.get(timeout=30) for _ in range(COUNT)]
    # The first second's worth comes as a burst, the others at their pace.
    print(f"the first {PER_SECOND} came within {arrived[PER_SECOND - 1] - arrived[0]:.1f} s")
    print(f"the other {COUNT - PER_SECOND} took {arrived[-1] - arrived[PER_SECOND - 1]:.1f} s more")

    http.delete(f"{broker}/{SUBSCRIPTION}").raise_for_status()
    http.delete(f"{broker}/{TOPIC}").raise_for_status()
    shop.shutdown()
