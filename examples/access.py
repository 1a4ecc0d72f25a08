"""Access control: a key for each program, and policies that say what its account may do.

The example starts a broker with `--auth required`, so run it with an interpreter that has the broker's package, and
httpx.  Google's clients take the same key files by GOOGLE_APPLICATION_CREDENTIALS, over TLS.

python examples/access.py
"""

import base64
import json
import time
from typing import Any

import httpx
import jwt
from own_broker import own_broker
from plain_http import Broker

PROJECT = "projects/example-access"
TOPIC, SUB = f"{PROJECT}/topics/orders", f"{PROJECT}/subscriptions/worker"


def bearer(key: dict[str, str], url: str) -> dict[str, str]:
    """A token that the key signs for this broker and this hour (https://google.aip.dev/auth/4111)."""
    now, email = int(time.time()), key["client_email"]
    claims = {"iss": email, "sub": email, "aud": f"{url}/", "iat": now, "exp": now + 3600}
    token = jwt.encode(claims, key["private_key"], algorithm="RS256", headers={"kid": key["private_key_id"]})
    return {"Authorization": f"Bearer {token}"}


def attempt(who: str, broker: Broker, method: str, path: str, body: object = None) -> None:
    try:
        broker.call(method, path, body)
        print(f"{who} may call {path.rpartition(':')[2]}")
    except httpx.HTTPStatusError as error:
        answer: dict[str, Any] = error.response.json()["error"]
        print(f"{who} is refused: {answer['status']}")


with own_broker("--auth", "required") as own:
    # The first start wrote the administrator's key, which may do everything.
    admin_key = json.loads((own.data_dir / "admin-key.json").read_text())
    with Broker(url=own.url, headers=bearer(admin_key, own.url)) as admin:
        admin.call("PUT", TOPIC, {})
        admin.call("PUT", SUB, {"topic": TOPIC})
        account = admin.call("POST", f"{PROJECT}/serviceAccounts", {"accountId": "billing"})
        email = account["email"]
        made = admin.call("POST", f"{PROJECT}/serviceAccounts/{email}/keys", {})
        billing_key = json.loads(base64.b64decode(made["privateKeyData"]))
        binding = {"role": "roles/pubsub.publisher", "members": [f"serviceAccount:{email}"]}
        admin.call("POST", f"{TOPIC}:setIamPolicy", {"policy": {"bindings": [binding]}})
        sensors = {"displayName": "sensors", "roles": ["roles/pubsub.subscriber"], "resources": [SUB]}
        api_key = admin.call("POST", f"{PROJECT}/apiKeys", sensors)

        publish, pull = {"messages": [{"data": "b3JkZXI="}]}, {"maxMessages": 1}
        with (
            Broker(url=own.url) as nobody,
            Broker(url=own.url, headers=bearer(billing_key, own.url)) as billing,
            Broker(url=own.url, headers={"X-Goog-Api-Key": api_key["keyString"]}) as sensor,
        ):
            attempt("a call without credentials", nobody, "POST", f"{TOPIC}:publish", publish)
            attempt("billing", billing, "POST", f"{TOPIC}:publish", publish)
            attempt("billing", billing, "POST", f"{SUB}:pull", pull)
            attempt("the sensors' key", sensor, "POST", f"{SUB}:pull", pull)
            admin.call("POST", f"{PROJECT}/serviceAccounts/{email}:disable", {})
            attempt("billing, once it is disabled,", billing, "POST", f"{TOPIC}:publish", publish)
