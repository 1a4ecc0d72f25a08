"""Topics and subscriptions as a file declares them: `broker apply` makes them so, and says what it changes.

python examples/apply.py
"""

import os
import subprocess
import sys
from typing import Any

import httpx

HOST = os.environ.get("PUBSUB_EMULATOR_HOST", "127.0.0.1:8085")
PROJECT = "projects/example-apply"
TOPIC, SUB = f"{PROJECT}/topics/orders", f"{PROJECT}/subscriptions/worker"
broker = httpx.Client(base_url=f"http://{HOST}/v1/", timeout=60)


def call(method: str, path: str, body: object = None) -> Any:
    return broker.request(method, path, json=body).raise_for_status().json()


def clean_up() -> None:
    for name in (SUB, TOPIC):
        broker.delete(name)  # 404 if there is none


clean_up()
shop = """
topics:
  orders: {messageRetentionDuration: 1d}
subscriptions:
  worker: {topic: orders, filter: 'attributes.country = "de"'}
"""


def apply(declared: str, *options: str) -> str:
    command = [sys.executable, "-m", "broker", "apply", "--file", "-", "--project", "example-apply", *options]
    server = ["--url", f"http://{HOST}"]
    done = subprocess.run([*command, *server], input=declared, capture_output=True, text=True, check=True)
    return done.stdout


print(apply(shop))
changed = shop.replace('"de"', '"fr"')
print(apply(changed, "--dry-run"))
print(apply(changed))
print("the filter is now", call("GET", SUB)["filter"])
clean_up()
broker.close()
