"""Requests as Google's libraries for PHP and Ruby send them: tokens that do not name their key, PHP's resources.

Headers and claims are those of google/auth (PHP) and googleauth with signet (Ruby), in their order.
"""

import base64
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256

from broker.domain.service_account import MAX_KEYS
from tests.fixtures.access import AUDIENCE, Guarded, private_key
from tests.fixtures.broker import Json

GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TOKEN_URI = "https://oauth2.googleapis.com/token"
SCOPES = "https://www.googleapis.com/auth/cloud-platform https://www.googleapis.com/auth/pubsub"
PHP_HEADERS = {
    "x-goog-api-client": "gl-php/8.3.14 gapic/2.18.1 gax/1.40.0 grpc/1.74.0 rest/1.40.0 pb/4.33.0",
    "x-goog-request-params": "topic=projects%2Fguarded%2Ftopics%2Forders",
    "User-Agent": "gcloud-php/1.80.0",
}


def _signed(key: Json, header: Json, claims: Json) -> str:
    def part(value: bytes) -> str:
        return base64.urlsafe_b64encode(value).rstrip(b"=").decode()

    text = f"{part(json.dumps(header).encode())}.{part(json.dumps(claims).encode())}"
    signature = private_key(key["private_key"]).sign(text.encode(), PKCS1v15(), SHA256())
    return f"{text}.{part(signature)}"


def _php(key: Json, now: int, **claims: str) -> str:
    """An hour from now, and made a minute ago."""
    said = {"iss": key["client_email"], "exp": now + 3600, "iat": now - 60} | claims
    return _signed(key, {"typ": "JWT", "alg": "RS256"}, said)


def _ruby(key: Json, now: int, **claims: str) -> str:
    said = {"iss": key["client_email"], **claims, "exp": now + 60, "iat": now - 60}
    return _signed(key, {"alg": "RS256"}, said)


@pytest.mark.parametrize("sign", [_php, _ruby])
@pytest.mark.parametrize("claims", [{"aud": AUDIENCE}, {"scope": SCOPES}], ids=["audience", "scope"])
async def test_a_self_signed_token_need_not_name_its_key(
    broker: Guarded, sign: Any, claims: dict[str, str]
) -> None:
    account = await broker.account()
    keys = [await broker.key(account) for _ in range(3)]
    for key in keys:
        token = sign(key, int(broker.now.timestamp()), sub=key["client_email"], **claims)
        headers = {"Authorization": f"Bearer {token}"} | PHP_HEADERS
        assert await broker.ok("GET", f"{broker.project}/topics", headers=headers) == {}


@pytest.mark.parametrize("sign", [_php, _ruby])
async def test_an_assertion_for_a_token_need_not_name_its_key(broker: Guarded, sign: Any) -> None:
    key = await broker.key(await broker.account())
    assertion = sign(key, int(broker.now.timestamp()), aud=TOKEN_URI, scope=SCOPES)
    answer = await broker.client.post("/token", data={"grant_type": GRANT, "assertion": assertion})
    assert answer.status_code == 200, answer.text
    headers = {"Authorization": f"Bearer {answer.json()['access_token']}"}
    assert await broker.ok("GET", f"{broker.project}/topics", headers=headers) == {}


async def test_such_a_token_ends_with_the_key_that_signed_it(broker: Guarded) -> None:
    account = await broker.account()
    first, second = [await broker.key(account) for _ in range(2)]
    now = int(broker.now.timestamp())
    shown = [{"Authorization": f"Bearer {_php(key, now, aud=AUDIENCE)}"} for key in (first, second)]

    async def statuses() -> list[int]:
        return [(await broker.call("GET", f"{broker.project}/topics", headers=each)).status_code for each in shown]

    assert await statuses() == [200, 200]
    await broker.ok("DELETE", first["name"])
    assert await statuses() == [401, 200]


async def test_no_more_keys_are_tried_than_an_account_may_have(broker: Guarded) -> None:
    """The administrator's account may have more: the newest are tried, and others must be named."""
    assert broker.broker.access is not None
    email = broker.admin["client_email"]
    await broker.call("GET", f"{broker.project}/topics")
    current = broker.broker.access.directory.current
    assert current.key_ids[email] == [broker.admin["private_key_id"]]
    account = await broker.account()
    made = [await broker.key(account) for _ in range(MAX_KEYS)]
    await broker.call("GET", f"{broker.project}/topics")
    tried = broker.broker.access.directory.current.key_ids[account["email"]]
    assert tried == [key["private_key_id"] for key in reversed(made)]


async def test_what_phps_suite_creates_is_returned_as_it_was(broker: Guarded) -> None:
    headers = broker.bearer() | PHP_HEADERS
    retention = {"messageRetentionDuration": "600.000001001s"}
    topic = f"{broker.project}/topics/orders"
    created = await broker.ok("PUT", topic, retention, headers=headers)
    assert created["messageRetentionDuration"] == "600.000001001s"
    push = {"pushEndpoint": "https://example.com/push", "attributes": {"x-goog-version": "v1beta1"}}
    backoff = {"minimumBackoff": "10.000000001s", "maximumBackoff": "600s"}
    subscription = {
        "topic": topic,
        "pushConfig": push,
        "retryPolicy": backoff,
        "expirationPolicy": {"ttl": "86400.000000999s"},
    } | retention
    name = f"{broker.project}/subscriptions/billing"
    await broker.ok("PUT", name, subscription, headers=headers)
    found = await broker.ok("GET", name, headers=headers)
    assert {field: found[field] for field in subscription} == subscription
