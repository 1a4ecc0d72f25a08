"""What would this filter have matched?  Ask before you make a subscription of it.

Google's service has no such call, so this speaks plain HTTP.

python examples/filter_on_trial.py
"""

import base64
import os
from typing import Any

import httpx

HOST = os.environ.get("PUBSUB_EMULATOR_HOST", "127.0.0.1:8085")
TOPIC = "projects/example-trial/topics/orders"

with httpx.Client(base_url=f"http://{HOST}/v1/", timeout=30) as broker:

    def call(method: str, path: str, body: object = None) -> Any:
        return broker.request(method, path, json=body).raise_for_status().json()

    broker.delete(TOPIC)  # of a run before; 404 if there is none
    call("PUT", TOPIC, {"messageRetentionDuration": "3600s"})  # what the topic still has is what can be looked at
    messages = [
        {"data": base64.b64encode(b"order").decode(), "attributes": {"country": country, "number": str(number)}}
        for number, country in enumerate(["de", "fr", "de", "it"], 1)
    ]
    call("POST", f"{TOPIC}:publish", {"messages": messages})

    for text in ('attributes.country = "de"', 'attributes.country = "uk"'):
        tried = call("POST", f"{TOPIC}:testFilter", {"filter": text})
        print(f"{text}: {tried['matchedMessageCount']} of {tried['scannedMessageCount']} messages")
        for message in tried.get("matchedMessages", []):
            print("   ", message["messageId"], message["attributes"])  # newest first

    refused = broker.post(f"{TOPIC}:testFilter", json={"filter": "attributes.country ="})
    print(refused.status_code, refused.json()["error"]["message"])
    call("DELETE", TOPIC)
