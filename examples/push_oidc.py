"""A webhook that checks a token: pushes with OpenID Connect, as Google's service sends them.

The broker signs each request's token with its private key; the public one is at /.well-known/jwks.json.

pip install google-cloud-pubsub 'pyjwt[crypto]'
python examples/push_oidc.py
"""

import base64
import contextlib
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import jwt
from google.api_core.exceptions import NotFound
from google.cloud import pubsub_v1
from google.pubsub_v1.types import PushConfig, Subscription

HOST = os.environ.setdefault("PUBSUB_EMULATOR_HOST", "127.0.0.1:8085")
PROJECT = "projects/example-oidc-push"
TOPIC, SUBSCRIPTION = f"{PROJECT}/topics/orders", f"{PROJECT}/subscriptions/shop"

# Both are yours to choose: who the token is for, and who it says that it comes from.
AUDIENCE, SENDER = "https://shop.example.com", "broker@example.com"
KEYS = jwt.PyJWKClient(f"http://{HOST}/.well-known/jwks.json")
arrived = threading.Event()


class Shop(BaseHTTPRequestHandler):
    """The receiver."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            token = self.headers["Authorization"].removeprefix("Bearer ")
            key = KEYS.get_signing_key_from_jwt(token)
            said = jwt.decode(token, key, algorithms=["RS256"], audience=AUDIENCE)
            if said["email"] != SENDER:
                raise jwt.InvalidTokenError(f"it is from {said['email']}")
        except (jwt.PyJWTError, AttributeError) as error:
            print("a stranger is refused:", error)
            self.send_response(401)
        else:
            data = base64.b64decode(json.loads(body)["message"]["data"])
            print(f"verified: {data.decode()!r} from {said['email']}, issued by {said['iss']}")
            self.send_response(204)
            arrived.set()
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """What is printed above is enough."""


def clean_up() -> None:
    with contextlib.suppress(NotFound):
        subscriber.delete_subscription(subscription=SUBSCRIPTION)
    with contextlib.suppress(NotFound):
        publisher.delete_topic(topic=TOPIC)


with (
    ThreadingHTTPServer(("127.0.0.1", 0), Shop) as shop,
    pubsub_v1.PublisherClient() as publisher,
    pubsub_v1.SubscriberClient() as subscriber,
):
    threading.Thread(target=shop.serve_forever, daemon=True).start()
    clean_up()
    publisher.create_topic(name=TOPIC)
    push = PushConfig(
        push_endpoint=f"http://127.0.0.1:{shop.server_port}/orders",  # an address that the broker can reach
        oidc_token=PushConfig.OidcToken(service_account_email=SENDER, audience=AUDIENCE),
    )
    subscriber.create_subscription(request=Subscription(name=SUBSCRIPTION, topic=TOPIC, push_config=push))
    publisher.publish(TOPIC, b"order 1").result()
    assert arrived.wait(30), "nothing was pushed"
    clean_up()
    shop.shutdown()
