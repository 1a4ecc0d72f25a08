"""Topics and subscriptions as a file declares them: `broker apply` makes them so, and says what it changes.

python examples/apply.py
"""

import os
import subprocess
import sys

from plain_http import Broker

PROJECT = "projects/example-apply"
TOPIC, SUB = f"{PROJECT}/topics/orders", f"{PROJECT}/subscriptions/worker"

shop = """
topics:
  orders: {messageRetentionDuration: 1d}
subscriptions:
  worker: {topic: orders, filter: 'attributes.country = "de"'}
"""


def apply(declared: str, *options: str) -> str:
    command = [sys.executable, "-m", "broker", "apply", "--file", "-", "--project", "example-apply", *options]
    server = ["--url", f"http://{os.environ.get('PUBSUB_EMULATOR_HOST', '127.0.0.1:8085')}"]
    done = subprocess.run([*command, *server], input=declared, capture_output=True, text=True, check=True)
    return done.stdout


with Broker(SUB, TOPIC) as broker:
    print(apply(shop))
    changed = shop.replace('"de"', '"fr"')
    print(apply(changed, "--dry-run"))
    print(apply(changed))
    print("the filter is now", broker.call("GET", SUB)["filter"])
