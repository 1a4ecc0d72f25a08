"""Tokens that somebody made up, stole, or made for somebody else: each is refused, and nothing is changed."""

import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import jwt
import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from broker.access.credentials.key_pairs import make_key_pair
from broker.access.credentials.tokens import MAX_TOKEN_BYTES
from tests.fixtures.access import Guarded, guarded
from tests.fixtures.broker import Json

GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
pytestmark = pytest.mark.asyncio(loop_scope="module")

Forge = Callable[[Guarded, Json], str]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(clone: Callable[[], Any]) -> AsyncIterator[Guarded]:
    with clone() as database_url:
        async with guarded(database_url) as running:
            yield running


def _b64(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def _claims(broker: Guarded, key: Json, **claims: Any) -> Json:
    said: Json = jwt.decode(broker.token(key, **claims), options={"verify_signature": False})
    return said


def _raw(header: Json, claims: Json, sign: Callable[[bytes], bytes]) -> str:
    start = f"{_b64(json.dumps(header).encode())}.{_b64(json.dumps(claims).encode())}"
    return f"{start}.{_b64(sign(start.encode()))}"


def _public(key: Json) -> bytes:
    private = load_pem_private_key(key["private_key"].encode(), None)
    return private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def _without_a_signature(broker: Guarded, key: Json) -> str:
    header = {"alg": "none", "typ": "JWT", "kid": key["private_key_id"]}
    return _raw(header, _claims(broker, key), lambda _: b"")


def _with_the_signature_taken_off(broker: Guarded, key: Json) -> str:
    return broker.token(key).rpartition(".")[0] + "."


def _with_the_public_key_as_a_secret(broker: Guarded, key: Json) -> str:
    header = {"alg": "HS256", "typ": "JWT", "kid": key["private_key_id"]}
    secret = _public(key)
    return _raw(header, _claims(broker, key), lambda text: hmac.digest(secret, text, hashlib.sha256))


def _with_an_empty_secret(broker: Guarded, key: Json) -> str:
    [kid] = list(_token_keys(broker))[-1:]
    return _raw({"alg": "HS256", "kid": kid}, _claims(broker, key), lambda text: hmac.digest(b"\0", text, "sha256"))


def _token_keys(broker: Guarded) -> dict[str, Any]:
    assert broker.broker.guard.access is not None
    return broker.broker.guard.access.directory.current.token_keys


def _with_an_access_tokens_name_and_an_accounts_key(broker: Guarded, key: Json) -> str:
    [kid] = list(_token_keys(broker))[-1:]
    return jwt.encode(_claims(broker, key), key["private_key"], algorithm="RS256", headers={"kid": kid})


def _with_another_key(broker: Guarded, key: Json) -> str:
    return broker.token(key | {"private_key": make_key_pair().private_key})


def _with_a_key_of_its_own_in_the_header(broker: Guarded, key: Json) -> str:
    pair = make_key_pair()
    private = load_pem_private_key(pair.private_key.encode(), None)
    jwk = jwt.algorithms.RSAAlgorithm.to_jwk(private.public_key(), as_dict=True)  # type: ignore[arg-type]
    headers = {
        "kid": key["private_key_id"],
        "jwk": jwk,
        "jku": "http://127.0.0.1:9/jwks",
        "x5u": "http://127.0.0.1:9",
    }
    return jwt.encode(_claims(broker, key), pair.private_key, algorithm="RS256", headers=headers)


def _named(kid: Any) -> Forge:
    def forge(broker: Guarded, key: Json) -> str:
        private = load_pem_private_key(key["private_key"].encode(), None)
        pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        header = {"alg": "RS256", "kid": kid}
        return jwt.encode(_claims(broker, key), pem, algorithm="RS256", headers=header)

    return forge


def _without_a_kid(**claims: Any) -> Forge:
    return lambda broker, key: jwt.encode(_claims(broker, key, **claims), key["private_key"], algorithm="RS256")


def _of_another_key_and_without_a_kid(broker: Guarded, key: Json) -> str:
    return jwt.encode(_claims(broker, key), make_key_pair().private_key, algorithm="RS256")


def _saying(**claims: Any) -> Forge:
    return lambda broker, key: broker.token(key, **claims)


def _at(**times: int) -> Forge:
    """With times so many seconds from now."""

    def forge(broker: Guarded, key: Json) -> str:
        now = int(broker.now.timestamp())
        return broker.token(key, **{name: now + seconds for name, seconds in times.items()})

    return forge


def _asking_for_extensions(broker: Guarded, key: Json) -> str:
    headers = {"kid": key["private_key_id"], "crit": ["exp"], "exp": 1}
    return jwt.encode(_claims(broker, key), key["private_key"], algorithm="RS256", headers=headers)


FORGED: dict[str, Forge] = {
    "alg none": _without_a_signature,
    "no signature": _with_the_signature_taken_off,
    "RS256 as HS256": _with_the_public_key_as_a_secret,
    "HS256 with a guessed secret": _with_an_empty_secret,
    "HS256's name with RS256": _with_an_access_tokens_name_and_an_accounts_key,
    "another key": _with_another_key,
    "a key in the header": _with_a_key_of_its_own_in_the_header,
    "kid: a path": _named("../../../../dev/null"),
    "kid: SQL": _named("' OR '1'='1"),
    "kid: U+0000": _named("a\0b"),
    "kid: unknown": _named("0" * 40),
    "no kid, another key": _of_another_key_and_without_a_kid,
    "no kid, another issuer": _without_a_kid(iss="somebody@else.iam.broker.internal"),
    "no kid, no issuer": _without_a_kid(iss=None),
    "no kid, another subject": _without_a_kid(sub="broker-admin@other.iam.broker.internal"),
    "crit": _asking_for_extensions,
    "another issuer": _saying(iss="somebody@else.iam.broker.internal"),
    "another subject": _saying(sub="broker-admin@other.iam.broker.internal"),
    "another audience": _saying(aud="https://storage.googleapis.com/"),
    "audience nearly": _saying(aud="https://pubsub.googleapis.com.evil.example/"),
    "for /token": _saying(aud="https://oauth2.googleapis.com/token"),
    "audience no text": _saying(aud=7),
    "no audience, no scope": _saying(aud=None),
    "another scope": _saying(aud=None, scope="https://www.googleapis.com/auth/devstorage.read_only"),
    "no end": _saying(exp=None),
    "end no time": _saying(exp="tomorrow"),
    "end true": _saying(exp=True),
    "end in the far future": _saying(exp=10**30),
    "no beginning": _saying(iat=None),
    "expired": _at(iat=-3700, exp=-100),
    "not valid yet": _at(iat=100, exp=3600),
    "nbf ahead": _at(nbf=100),
    "a day long": _at(exp=86_400),
}


@pytest.mark.parametrize("name", FORGED)
async def test_a_token_that_is_not_what_it_says_is_refused(shared: Guarded, name: str) -> None:
    token = FORGED[name](shared, shared.admin)
    response = await shared.call(
        "PUT", f"{shared.project}/topics/forged", {}, headers={"Authorization": f"Bearer {token}"}
    )
    assert response.status_code == 401
    assert response.headers["www-authenticate"].startswith("Bearer ")
    error = response.json()["error"]
    assert error["status"] == "UNAUTHENTICATED"
    assert token not in response.text
    assert error["details"][0]["reason"] in ("ACCESS_TOKEN_TYPE_UNSUPPORTED", "ACCESS_TOKEN_EXPIRED")
    assert (await shared.call("GET", f"{shared.project}/topics/forged")).status_code == 404


@pytest.mark.parametrize("name", ["alg none", "RS256 as HS256", "another key", "another issuer", "expired"])
async def test_what_proves_nothing_is_exchanged_for_nothing(shared: Guarded, name: str) -> None:
    assertion = FORGED[name](shared, shared.admin)
    answer = await shared.client.post("/token", data={"grant_type": GRANT, "assertion": assertion})
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant")
    assert assertion not in answer.text


async def test_a_token_for_a_call_is_exchanged_for_nothing(shared: Guarded) -> None:
    answer = await shared.client.post("/token", data={"grant_type": GRANT, "assertion": shared.token()})
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant")


@pytest.mark.parametrize(
    "form",
    [{}, {"grant_type": "password"}, {"grant_type": GRANT}, {"grant_type": GRANT, "assertion": "é"}],
    ids=["nothing", "a password", "no assertion", "no token"],
)
async def test_what_is_no_exchange_is_refused_as_the_rfc_says(shared: Guarded, form: Json) -> None:
    answer = await shared.client.post("/token", data=form)
    assert answer.status_code == 400
    assert answer.json()["error"] in ("unsupported_grant_type", "invalid_grant")


async def test_a_form_without_end_is_refused(shared: Guarded) -> None:
    answer = await shared.client.post("/token", content=b"grant_type=" + b"x" * 100_000)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")


@pytest.mark.parametrize(
    "value",
    [b"Bearer", b"Basic dTpw", b"Bearer a.b.c", b"Bearer \xff\xfe", b"Bearer " + b"." * 1000],
)
async def test_what_is_no_token_is_refused(shared: Guarded, value: bytes) -> None:
    response = await shared.call("GET", f"{shared.project}/topics", headers={"Authorization": value})
    assert response.status_code == 401


async def test_a_token_is_refused_past_its_longest(shared: Guarded) -> None:
    long = shared.bearer(padding="x" * MAX_TOKEN_BYTES)
    response = await shared.call("GET", f"{shared.project}/topics", headers=long)
    assert response.status_code == 401
    assert "longer than" in response.json()["error"]["message"]


async def test_two_headers_are_no_credential_even_if_one_alone_would_be(shared: Guarded) -> None:
    good = shared.bearer()["Authorization"]
    for values in ((good, "Bearer x"), ("Bearer x", good), (good, good)):
        headers = [("Authorization", value) for value in values]
        response = await shared.client.get(f"/v1/{shared.project}/topics", headers=headers)
        assert response.status_code == 401


async def test_a_token_goes_before_an_api_key_and_one_that_is_bad_is_not_made_good_by_it(shared: Guarded) -> None:
    made = await shared.ok("POST", f"{shared.project}/apiKeys", {"roles": ["roles/pubsub.viewer"]})
    key = {"X-Goog-Api-Key": made["keyString"]}
    for headers, status in (
        (key, 200),
        (key | {"Authorization": "Bearer x"}, 401),
        ({"X-Goog-Api-Key": "brk-x"} | shared.bearer(), 200),
    ):
        assert (await shared.call("GET", f"{shared.project}/topics", headers=headers)).status_code == status


async def test_a_clock_that_is_a_minute_off_is_forgiven(shared: Guarded) -> None:
    for forge in (_at(iat=50, exp=3600), _at(iat=-3640, exp=-40)):
        headers = {"Authorization": f"Bearer {forge(shared, shared.admin)}"}
        assert (await shared.call("GET", f"{shared.project}/topics", headers=headers)).status_code == 200


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "https://pubsub.googleapis.com/"},
        {"aud": "https://pubsub.googleapis.com/google.pubsub.v1.Publisher"},
        {"aud": ["https://somebody.example/", "http://127.0.0.1:8085/"]},
        {
            "aud": None,
            "scope": "https://www.googleapis.com/auth/cloud-platform https://www.googleapis.com/auth/pubsub",
        },
    ],
    ids=["Google's host", "the service", "the broker's own address", "scopes"],
)
async def test_what_googles_libraries_sign_is_taken(shared: Guarded, claims: Json) -> None:
    response = await shared.call("GET", f"{shared.project}/topics", headers=shared.bearer(**claims))
    assert response.status_code == 200


async def test_made_up_tokens_cost_no_statement(shared: Guarded) -> None:
    async def reads() -> int:
        async with shared.database.connection() as connection:
            row = await (
                await connection.execute(
                    "SELECT sum(seq_scan + coalesce(idx_scan, 0)) FROM pg_stat_user_tables "
                    "WHERE relname IN ('service_accounts', 'service_account_keys', 'api_keys', 'access_token_keys')"
                )
            ).fetchone()
            await connection.execute("SELECT pg_stat_clear_snapshot()")
        assert row is not None
        return int(row[0])

    before = await reads()
    for number in range(100):
        headers = {
            "Authorization": f"Bearer {jwt.encode({'n': number}, 's' * 32, headers={'kid': f'{number:040}'})}"
        }
        assert (await shared.call("GET", f"{shared.project}/topics", headers=headers)).status_code == 401
        headers = {"X-Goog-Api-Key": f"brk-{number}"}
        assert (await shared.call("GET", f"{shared.project}/topics", headers=headers)).status_code == 401
    assert await reads() - before < 100, "what runs by itself may read them; two hundred credentials did not"
    access = shared.broker.guard.access
    assert access is not None
    assert len(access.authenticator._refused) <= 5_000


async def test_a_refusal_is_remembered_so_that_it_is_verified_once(
    shared: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified = []
    decode = jwt.decode
    monkeypatch.setattr(jwt, "decode", lambda *args, **more: verified.append(1) or decode(*args, **more))
    headers = {"Authorization": f"Bearer {_with_another_key(shared, shared.admin)}"}
    for _ in range(20):
        assert (await shared.call("GET", f"{shared.project}/topics", headers=headers)).status_code == 401
    assert len(verified) == 1
    good = shared.bearer(jti="warm")
    for _ in range(20):
        assert (await shared.call("GET", f"{shared.project}/topics", headers=good)).status_code == 200
    assert len(verified) == 2
