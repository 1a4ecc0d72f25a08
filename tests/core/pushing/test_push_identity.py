"""How a receiver knows who pushes: OIDC tokens and the signatures of Standard Webhooks.

As https://cloud.google.com/pubsub/docs/authenticate-push-subscriptions and
https://www.standardwebhooks.com say, verified with the libraries that receivers use.
"""

import asyncio
import base64
import json
import secrets
from typing import Any

import google.auth.transport.requests
import httpx
import jwt
import pytest
import requests
from google.auth import exceptions
from google.oauth2 import id_token
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from tests.fixtures.broker import Json, eventually, message
from tests.fixtures.push_sink import Received
from tests.fixtures.pushes import Pushes, side_by_side

pytestmark = pytest.mark.asyncio(loop_scope="module")

EMAIL = "pusher@project.iam.gserviceaccount.com"
OIDC: Json = {"oidcToken": {"serviceAccountEmail": EMAIL}}
METADATA: Json = {"noWrapper": {"writeMetadata": True}}


def token_of(request: Received) -> str:
    scheme, _, token = request.headers["authorization"].partition(" ")
    assert scheme == "Bearer"
    return token


async def discovered(pushes: Pushes) -> Json:
    document: Json = (await pushes.rest.client.get("/.well-known/openid-configuration")).json()
    return document


async def pushed_with(pushes: Pushes, name: str = "sub", **config: Any) -> Received:
    path = await pushes.subscribe(pushConfig=config, name=name)
    await pushes.rest.publish("x")
    [request] = await pushes.wait_for(path, 1)
    return request


# --- OIDC -------------------------------------------------------------------------------------------------


@side_by_side
async def test_pyjwt_verifies_a_token_by_what_discovery_names(pushes: Pushes) -> None:
    """A8: signature, issuer and audience, which by default is the endpoint's URL."""
    token = token_of(await pushed_with(pushes, **OIDC))
    discovery = await discovered(pushes)
    endpoint = (await pushes.rest.ok("GET", pushes.rest.subscription()))["pushConfig"]["pushEndpoint"]

    def verify(audience: str) -> Json:
        key = jwt.PyJWKClient(discovery["jwks_uri"]).get_signing_key_from_jwt(token)
        claims: Json = jwt.decode(
            token, key, algorithms=["RS256"], audience=audience, issuer=discovery["issuer"],
            options={"require": ["iss", "aud", "azp", "sub", "email", "iat", "exp"]},
        )  # fmt: skip
        return claims

    claims = await asyncio.to_thread(verify, endpoint)
    assert claims["email"] == EMAIL
    assert claims["email_verified"] is True
    assert claims["azp"] == claims["sub"]
    assert claims["sub"].isdecimal()
    assert claims["exp"] == claims["iat"] + 3600
    header = jwt.get_unverified_header(token)
    assert (header["alg"], header["typ"]) == ("RS256", "JWT")
    assert header["kid"]
    with pytest.raises(jwt.InvalidAudienceError):
        await asyncio.to_thread(verify, "https://somebody.else/")


@side_by_side
async def test_google_auth_verifies_a_token(pushes: Pushes) -> None:
    """A8: as the receivers in Google's documentation do; with the audience that was asked for."""
    config = {"oidcToken": {"serviceAccountEmail": EMAIL, "audience": "my receivers"}}
    token = token_of(await pushed_with(pushes, **config))
    certificates = (await discovered(pushes))["jwks_uri"]

    def verify(token: str, audience: str) -> Json:
        with requests.Session() as session:
            request = google.auth.transport.requests.Request(session)
            claims: Json = id_token.verify_token(token, request, audience=audience, certs_url=certificates)
        return claims

    assert (await asyncio.to_thread(verify, token, "my receivers"))["email"] == EMAIL
    with pytest.raises((exceptions.GoogleAuthError, ValueError, jwt.PyJWTError)):
        await asyncio.to_thread(verify, token, "others")
    head, payload, signature = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
    forged = base64.urlsafe_b64encode(json.dumps(claims | {"email": "me"}).encode()).decode().rstrip("=")
    with pytest.raises((exceptions.GoogleAuthError, ValueError, jwt.PyJWTError)):
        await asyncio.to_thread(verify, f"{head}.{forged}.{signature}", "my receivers")


@side_by_side
async def test_the_served_keys_are_public_only_and_cacheable(pushes: Pushes) -> None:
    """A8: no part of a private key is served, at any of the addresses."""
    discovery = await discovered(pushes)
    for url in (discovery["jwks_uri"], "/.well-known/jwks.json", "/oauth2/v3/certs"):
        response = await pushes.rest.client.get(url)
        assert response.status_code == httpx.codes.OK
        keys = response.json()["keys"]
        assert keys
        for key in keys:
            assert key["kty"] == "RSA"
            assert key.keys() & {"d", "p", "q", "dp", "dq", "qi"} == set()
            assert key["alg"] == "RS256"


@side_by_side
async def test_a_token_comes_with_every_kind_of_request_and_no_attribute_replaces_it(pushes: Pushes) -> None:
    """A8: also unwrapped; and none without oidcToken."""
    paths = {
        "wrapped": await pushes.subscribe(name="wrapped", pushConfig=OIDC),
        "metadata": await pushes.subscribe(name="metadata", pushConfig=OIDC | METADATA),
        "without": await pushes.subscribe(name="without", pushConfig=METADATA),
    }
    digest = {"extensions": {"push": {"digest": {"maxDelay": "0.1s"}}}}
    paths["digest"] = await pushes.subscribe(name="digest", pushConfig=OIDC, **digest)
    await pushes.rest.publish(message("x", {"Authorization": "Bearer evil", "authorization": "Basic evil"}))
    keys = jwt.PyJWKClient((await discovered(pushes))["jwks_uri"])
    for name, path in paths.items():
        [request] = await pushes.wait_for(path, 1)
        if name == "without":
            assert "authorization" not in request.headers
        else:
            key = await asyncio.to_thread(keys.get_signing_key_from_jwt, token_of(request))
            assert key.key_type == "RSA"


@side_by_side
async def test_a_new_push_config_is_a_new_audience(pushes: Pushes) -> None:
    """A8: the token is made for the endpoint that is set now; without oidcToken there is none."""
    await pushed_with(pushes, **OIDC)
    path = pushes.path()
    await pushes.modify({"pushEndpoint": pushes.sink.url + path, **OIDC})
    await pushes.rest.publish("x")
    [request] = await pushes.wait_for(path, 1)
    claims = jwt.decode(token_of(request), options={"verify_signature": False})
    assert claims["aud"] == pushes.sink.url + path
    other = pushes.path()
    await pushes.push_to(other)
    await pushes.rest.publish("x")
    [request] = await pushes.wait_for(other, 1)
    assert "authorization" not in request.headers


# --- Standard Webhooks ------------------------------------------------------------------------------------


def new_secret(size: int = 32) -> str:
    return "whsec_" + base64.b64encode(secrets.token_bytes(size)).decode()


def signed_with(*webhook_secrets: str) -> Json:
    return {"extensions": {"push": {"webhookSecrets": list(webhook_secrets)}}}


def verifies(secret: str, request: Received, body: bytes | None = None) -> bool:
    try:
        Webhook(secret).verify((request.body if body is None else body).decode(), request.headers)
    except WebhookVerificationError:
        return False
    return True


@side_by_side
async def test_the_reference_library_verifies_a_signature(pushes: Pushes) -> None:
    """A8: wrapped, unwrapped and in digests, with secrets of the smallest and largest size."""
    for n, (size, config) in enumerate(((24, {}), (64, {"noWrapper": {}}), (33, METADATA))):
        secret = new_secret(size)
        path = await pushes.subscribe(name=f"sub{n}", pushConfig=config, **signed_with(secret))
        await pushes.rest.publish('{"json": "ü"}')
        [request] = await pushes.wait_for(path, 1)
        assert verifies(secret, request)
        assert not verifies(new_secret(size), request)
        assert not verifies(secret, request, request.body + b" ")
        other = {**request.headers, "webhook-id": "msg_other"}
        assert not verifies(secret, Received(0, 0, 0, 0, "", other, request.body))
        late = {**request.headers, "webhook-timestamp": str(int(request.headers["webhook-timestamp"]) + 1)}
        assert not verifies(secret, Received(0, 0, 0, 0, "", late, request.body))


@side_by_side
async def test_secrets_are_rotated_without_a_gap(pushes: Pushes) -> None:
    """A8: with two of them each verifies; then the old one does not any more."""
    old, new = new_secret(), new_secret()
    path = await pushes.subscribe(**signed_with(old))
    for count, current in enumerate(([old], [new, old], [new]), 1):
        body = {"subscription": signed_with(*current), "updateMask": "extensions"}
        await pushes.rest.ok("PATCH", pushes.rest.subscription(), body)
        await pushes.rest.publish("x")
        request = (await pushes.wait_for(path, count))[-1]
        assert [verifies(secret, request) for secret in (old, new)] == [old in current, new in current]
        assert len(request.headers["webhook-signature"].split(" ")) == len(current)


@side_by_side
async def test_a_repeat_has_the_same_webhook_id_and_a_signature_that_verifies(pushes: Pushes) -> None:
    """The id is the receiver's means to tell repeats; of a digest as long as it has the same messages."""
    secret = new_secret()
    answers = ("/status/500", "/status/500", "/status/200")
    single = await pushes.subscribe(*answers, name="single", **signed_with(secret))
    options = signed_with(secret)
    options["extensions"]["push"]["digest"] = {"maxMessages": 2, "maxDelay": "5s"}
    digest = await pushes.subscribe(*answers, name="digest", **options)
    await pushes.rest.publish("a", "b")
    found = await pushes.wait_for(single, 4)
    assert all(verifies(secret, request) for request in found)
    by_message = {(r.json["message"]["messageId"], r.headers["webhook-id"]) for r in found}
    assert len(by_message) == 2
    found = await pushes.wait_for(digest, 4)  # both, then each alone until it succeeds
    assert all(verifies(secret, request) for request in found)
    digests = [tuple(each["message"]["messageId"] for each in request.json["messages"]) for request in found]
    by_messages = set(zip(digests, (request.headers["webhook-id"] for request in found), strict=True))
    assert len(by_messages) == len(set(digests)) == 3


@side_by_side
async def test_attributes_forge_no_signature(pushes: Pushes) -> None:
    """A8: webhook-… as attributes replace nothing, nor add to it."""
    secret = new_secret()
    path = await pushes.subscribe(pushConfig=METADATA, **signed_with(secret))
    forged = {"webhook-id": "msg_evil", "Webhook-Timestamp": "1", "webhook-signature": "v1,evil"}
    await pushes.rest.publish(message("{}", forged))
    [request] = await pushes.wait_for(path, 1)
    assert verifies(secret, request)
    assert "evil" not in str(request.headers)


@side_by_side
async def test_what_an_endpoint_repeats_of_its_request_gives_no_token_away(pushes: Pushes) -> None:
    """A8: those who may look at failures need not be those who may push."""
    path = pushes.path("/echo/500")
    config = {"pushEndpoint": f"{pushes.sink.url}{path}?token=tok-en&a=b", **OIDC}
    await pushes.rest.create_subscription(pushConfig=config)
    await pushes.rest.publish("x")
    [request, *_] = await pushes.wait_for(path, 1)
    failure = (await eventually(pushes.failures))[-1]
    assert request.target.endswith("?token=tok-en&a=b")
    assert token_of(request).count(".") == 2
    assert failure["detail"] == f"{path}?…\nBearer …"
    assert failure["endpoint"] == f"{pushes.sink.url}{path}?…"
