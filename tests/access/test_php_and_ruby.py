"""Requests as Google's libraries for PHP and Ruby send them: tokens that do not name their key, PHP's resources.

Headers and claims are those of google/auth and google/gax (PHP), of googleauth and signet (Ruby), in their order.
"""

import base64
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256

from broker.access.principals.service_account import MAX_KEYS
from tests.fixtures.access import AUDIENCE, Guarded, private_key
from tests.fixtures.broker import Json

GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
SCOPES = "https://www.googleapis.com/auth/cloud-platform https://www.googleapis.com/auth/pubsub"
PHP_HEADERS = {
    "Content-Type": "application/json",
    "x-goog-api-client": "gl-php/8.3.14 gapic/2.19.4 gax/1.40.0 grpc/ rest/1.40.0 cred-type/jwt",
    "User-Agent": "gcloud-php-new/2.19.4",
}
PHP_QUERY = "%24alt=json%3Benum-encoding%3Dint"  # of every request over REST


def _signed(key: Json, header: Json, claims: Json) -> str:
    def part(value: Json) -> str:
        return encoded(json.dumps(value, separators=(",", ":")).encode())

    def encoded(value: bytes) -> str:
        return base64.urlsafe_b64encode(value).rstrip(b"=").decode()

    text = f"{part(header)}.{part(claims)}"
    return f"{text}.{encoded(private_key(key['private_key']).sign(text.encode(), PKCS1v15(), SHA256()))}"


def _php(key: Json, now: int, **claims: str) -> str:
    """An hour from now, and made a minute ago."""
    email = key["client_email"]
    said = {"iss": email, "exp": now + 3600, "iat": now - 60, **claims, "sub": email}
    return _signed(key, {"typ": "JWT", "alg": "RS256"}, said)


def _ruby(key: Json, now: int, **claims: str) -> str:
    """For a minute."""
    email = key["client_email"]
    return _signed(key, {"alg": "RS256"}, {"iss": email, "sub": email, "exp": now + 60, "iat": now - 60, **claims})


def _php_assertion(key: Json, now: int, *, named: bool = True) -> str:
    """It names its key, as PHP's self-signed tokens do not."""
    header = {"typ": "JWT", "alg": "RS256"} | ({"kid": key["private_key_id"]} if named else {})
    said = {"iss": key["client_email"], "exp": now + 3600, "iat": now - 60}
    return _signed(key, header, said | {"aud": "https://oauth2.googleapis.com/token", "scope": SCOPES})


def _earlier_php_assertion(key: Json, now: int) -> str:
    """Earlier versions did not name the key."""
    return _php_assertion(key, now, named=False)


def _ruby_assertion(key: Json, now: int) -> str:
    said = {"iss": key["client_email"], "aud": "https://www.googleapis.com/oauth2/v4/token"}
    said |= {"exp": now + 60, "iat": now - 60, "scope": SCOPES}
    return _signed(key, {"alg": "RS256"}, said)


@pytest.mark.parametrize("sign", [_php, _ruby])
@pytest.mark.parametrize(
    "claims",
    [{"aud": AUDIENCE}, {"aud": f"{AUDIENCE}google.pubsub.v1.Publisher"}, {"scope": SCOPES}],
    ids=["audience", "audience of gRPC", "scope"],
)
async def test_a_self_signed_token_need_not_name_its_key(
    broker: Guarded, sign: Any, claims: dict[str, str]
) -> None:
    account = await broker.account()
    keys = [await broker.key(account) for _ in range(3)]
    for key in keys:
        token = sign(key, int(broker.now.timestamp()), **claims)
        headers = {"Authorization": f"Bearer {token}"} | PHP_HEADERS
        assert await broker.ok("GET", f"{broker.project}/topics?{PHP_QUERY}", headers=headers) == {}


@pytest.mark.parametrize("sign", [_php_assertion, _earlier_php_assertion, _ruby_assertion])
async def test_an_assertion_for_a_token_need_not_name_its_key(broker: Guarded, sign: Any) -> None:
    key = await broker.key(await broker.account())
    assertion = sign(key, int(broker.now.timestamp()))
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
    assert broker.broker.guard.access is not None
    email = broker.admin["client_email"]
    await broker.call("GET", f"{broker.project}/topics")
    current = broker.broker.guard.access.directory.current
    assert current.key_ids[email] == [broker.admin["private_key_id"]]
    account = await broker.account()
    made = [await broker.key(account) for _ in range(MAX_KEYS)]
    await broker.call("GET", f"{broker.project}/topics")
    tried = broker.broker.guard.access.directory.current.key_ids[account["email"]]
    assert tried == [key["private_key_id"] for key in reversed(made)]


async def test_what_phps_suite_creates_is_returned_as_it_was(broker: Guarded) -> None:
    headers = broker.bearer() | PHP_HEADERS
    duration = "129600.000001001s"
    topic = f"{broker.project}/topics/orders"
    sent = await broker.ok("PUT", f"{topic}?{PHP_QUERY}", {"name": topic}, headers=headers)
    assert sent["name"] == topic
    name = f"{broker.project}/subscriptions/billing"
    subscription: Json = {
        "topic": topic,
        "messageRetentionDuration": duration,
        "expirationPolicy": {"ttl": duration},
        "retryPolicy": {"minimumBackoff": "15s", "maximumBackoff": "20s"},
    }
    await broker.ok("PUT", f"{name}?{PHP_QUERY}", {"name": name} | subscription, headers=headers)
    found = await broker.ok("GET", f"{name}?{PHP_QUERY}", headers=headers)
    assert {field: found[field] for field in subscription} == subscription
    assert found["state"] == 1  # enum-encoding=int


async def test_phps_suite_changes_push_attributes_of_a_subscription_without_an_endpoint(broker: Guarded) -> None:
    headers = broker.bearer() | PHP_HEADERS
    topic, name = f"{broker.project}/topics/orders", f"{broker.project}/subscriptions/billing"
    await broker.ok("PUT", topic, {"name": topic}, headers=headers)
    await broker.ok("PUT", name, {"name": name, "topic": topic}, headers=headers)
    labels, push = {"foo": "bar", "bat": "baz"}, {"attributes": {"x-goog-version": "v1beta1"}}
    body = {
        "subscription": {"name": name, "pushConfig": push, "labels": labels},
        "updateMask": "labels,pushConfig.attributes",
    }
    await broker.ok("PATCH", f"{name}?{PHP_QUERY}", body, headers=headers)
    found = await broker.ok("GET", f"{name}?{PHP_QUERY}", headers=headers)
    assert (found["labels"], found["pushConfig"]["attributes"]) == (labels, push["attributes"])
