"""Tokens of an issuer outside of the broker: whose they are, when its keys change, and when it hangs or lies."""

import asyncio
import json
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

from broker.access.credentials.authenticator import Shown
from broker.access.credentials.issuer_keys import AGAIN_SECONDS, MAX_AGE_SECONDS, REFRESH_SECONDS, IssuerKeys
from broker.access.principals.caller import Caller
from broker.access.principals.oidc_issuer import OidcIssuer, parse_issuers
from broker.model.errors import Unauthenticated, Unavailable
from broker.observability.state_changes import StateChanges
from tests.fixtures.access import Guarded, guarded
from tests.fixtures.broker import Json, eventually

pytestmark = [pytest.mark.slow, pytest.mark.ci]

RSA = generate_private_key(65537, 2048)
WEAK = generate_private_key(65537, 1024)
EC = ec.generate_private_key(ec.SECP256R1())


def _jwk(key: Any, kid: str, **more: Any) -> Json:
    algorithm = jwt.algorithms.ECAlgorithm if key is EC else jwt.algorithms.RSAAlgorithm
    return dict(algorithm.to_jwk(key.public_key(), as_dict=True)) | {"kid": kid, "use": "sig"} | more


def _signed(claims: Json, key: Any, algorithm: str, kid: str) -> str:
    with warnings.catch_warnings():  # of keys that are weak
        warnings.simplefilter("ignore")
        return jwt.encode(claims, key, algorithm=algorithm, headers={"kid": kid})


@dataclass
class Issuer:
    """An HTTP server that answers with `documents`, or not at all."""

    documents: dict[str, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    hangs: bool = False
    url: str = ""
    released: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
        self.asked.append(path)
        if self.hangs:
            await self.released.wait()
        body = self.documents.get(path, {})
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(text), text))
        writer.close()

    def serve(self, *keys: Json) -> None:
        self.documents["/.well-known/openid-configuration"] = {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
        self.documents["/keys"] = {"keys": keys}

    def token(
        self, broker: Guarded, key: Any = RSA, kid: str = "one", *, alg: str = "RS256", **claims: Any
    ) -> Shown:
        issued = int(broker.now.timestamp())
        said = {"iss": self.url, "aud": "broker", "sub": "7", "iat": issued, "exp": issued + 300} | claims
        return Shown(f"Bearer {_signed(said, key, alg, kid)}".encode())


@asynccontextmanager
async def running_issuer() -> AsyncIterator[Issuer]:
    issuer = Issuer()
    server = await asyncio.start_server(issuer.answer, "127.0.0.1", 0)
    issuer.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    issuer.serve(_jwk(RSA, "one"))
    try:
        yield issuer
    finally:
        issuer.released.set()
        server.close()


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with running_issuer() as running:
        yield running


@pytest.fixture
async def trusting(issuer: Issuer, clone: Callable[[], Any]) -> AsyncIterator[Guarded]:
    described = OidcIssuer(
        issuer=issuer.url, audiences=["broker"], domains=["shop.example"], attribute_claims=["repository"]
    )
    with clone() as database_url:
        async with guarded(database_url, oidc_issuers=(described,)) as running:
            yield running


async def _caller(broker: Guarded, shown: Shown) -> Caller:
    assert broker.broker.guard.access is not None
    return await broker.broker.guard.access.authenticator.caller(shown)


async def test_a_caller_is_the_user_whose_verified_address_the_issuer_may_speak_for(
    issuer: Issuer, trusting: Guarded
) -> None:
    mine = {
        "email": "Ann@shop.example",
        "email_verified": True,
        "groups": ["ops@shop.example", "ops@other.example"],
    }
    caller = await _caller(trusting, issuer.token(trusting, **mine, repository="shop/app"))
    host = issuer.url.removeprefix("http://")
    assert caller.member == "user:ann@shop.example"
    assert caller.members == {
        "user:ann@shop.example",
        "domain:shop.example",
        f"principal://{host}/subject/7",
        "group:ops@shop.example",
        f"principalSet://{host}/group/ops@shop.example",
        f"principalSet://{host}/group/ops@other.example",
        f"principalSet://{host}/attribute.repository/shop/app",
        "allUsers",
        "allAuthenticatedUsers",
    }


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"email": "ann@shop.example"},
        {"email": "ann@shop.example", "email_verified": False},
        {"email": "ann@other.example", "email_verified": True},
        {"email": "broker-admin@broker-system.iam.broker.internal", "email_verified": True},
        {"email": "@shop.example", "email_verified": True},
        {"email": ["ann@shop.example"], "email_verified": True},
    ],
)
async def test_any_other_is_the_issuers_subject_and_nobody_of_the_brokers(
    issuer: Issuer, trusting: Guarded, claims: Json
) -> None:
    caller = await _caller(trusting, issuer.token(trusting, **claims))
    assert caller.member == f"principal://{issuer.url.removeprefix('http://')}/subject/7"
    assert not [member for member in caller.members if member.startswith(("user:", "serviceAccount:", "domain:"))]


async def test_tokens_for_somebody_else_old_ones_and_forged_ones_are_refused(
    issuer: Issuer, trusting: Guarded
) -> None:
    issuer.serve(
        _jwk(RSA, "one"), _jwk(WEAK, "weak"), _jwk(EC, "ec"), {"kty": "oct", "kid": "oct", "k": "c2VjcmV0"}
    )
    now = int(trusting.now.timestamp())
    assert (await _caller(trusting, issuer.token(trusting, EC, "ec", alg="ES256"))).authenticated
    for shown in (
        issuer.token(trusting, aud="somebody"),
        issuer.token(trusting, aud=None),
        issuer.token(trusting, exp=now - 100),
        issuer.token(trusting, nbf=now + 100),
        issuer.token(trusting, sub=""),
        issuer.token(trusting, iss="https://elsewhere.example"),
        issuer.token(trusting, generate_private_key(65537, 2048)),
        issuer.token(trusting, WEAK, "weak"),
        issuer.token(trusting, "s" * 32, "oct", alg="HS256"),
        issuer.token(trusting, "s" * 32, "one", alg="HS256"),
        issuer.token(trusting, RSA, "ec"),
        issuer.token(trusting, RSA, "unknown"),
    ):
        with pytest.raises(Unauthenticated):
            await _caller(trusting, shown)


async def test_keys_are_read_once_and_again_when_there_is_a_new_one(issuer: Issuer, trusting: Guarded) -> None:
    assert trusting.broker.guard.access is not None
    keys = trusting.broker.guard.access.authenticator._issuers._issuers[issuer.url][1]
    seconds = [0.0]
    keys._ticks = lambda: seconds[0]
    for _ in range(3):
        await _caller(trusting, issuer.token(trusting, jti=str(_)))
    assert issuer.asked == ["/.well-known/openid-configuration", "/keys"]
    new = generate_private_key(65537, 2048)
    issuer.serve(_jwk(new, "two"))
    for number in range(5):  # nobody makes the broker ask again and again
        with pytest.raises(Unauthenticated):
            await _caller(trusting, issuer.token(trusting, new, "two", jti=str(number)))
    assert len(issuer.asked) == 2
    seconds[0] = 11.0
    assert (await _caller(trusting, issuer.token(trusting, new, "two", jti="5"))).authenticated
    with pytest.raises(Unauthenticated):  # the one that the issuer has no more
        await _caller(trusting, issuer.token(trusting, jti="6"))


async def test_a_token_that_was_accepted_ends_when_its_issuer_withdraws_the_key(
    issuer: Issuer, trusting: Guarded
) -> None:
    access = trusting.broker.guard.access
    assert access is not None
    other = generate_private_key(65537, 2048)
    issuer.serve(_jwk(RSA, "one"), _jwk(other, "two"))
    shown, kept = issuer.token(trusting), issuer.token(trusting, other, "two")
    callers = [await _caller(trusting, shown), await _caller(trusting, kept)]
    keys = access.issuers._issuers[issuer.url][1]
    seconds = [keys._ticks()]
    keys._ticks = lambda: seconds[0]
    issuer.serve(_jwk(other, "two"))
    await access.issuers.refresh()
    assert (await _caller(trusting, shown)).authenticated, "the keys have just been read"
    seconds[0] += MAX_AGE_SECONDS - REFRESH_SECONDS
    await access.issuers.refresh()
    assert access.authenticator.warm(shown.authorization) is None
    with pytest.raises(Unauthenticated):
        await _caller(trusting, shown)
    assert (await _caller(trusting, kept)).authenticated
    assert [access.authenticator.still_holds(caller) for caller in callers] == [False, True]


async def test_a_token_ends_when_its_issuer_gives_the_name_of_the_key_to_another(
    issuer: Issuer, trusting: Guarded
) -> None:
    access = trusting.broker.guard.access
    assert access is not None
    shown = issuer.token(trusting)
    assert (await _caller(trusting, shown)).authenticated
    issuer.serve(_jwk(generate_private_key(65537, 2048), "one"))
    access.issuers._issuers[issuer.url][1]._read_at -= MAX_AGE_SECONDS
    await access.issuers.refresh()
    with pytest.raises(Unauthenticated):
        await _caller(trusting, shown)


async def test_while_an_issuer_is_away_its_tokens_are_accepted(issuer: Issuer, trusting: Guarded) -> None:
    access = trusting.broker.guard.access
    assert access is not None
    shown = issuer.token(trusting)
    await _caller(trusting, shown)
    issuer.documents["/keys"] = b"no JSON"
    access.issuers._issuers[issuer.url][1]._read_at -= MAX_AGE_SECONDS
    await access.issuers.refresh()
    assert (await _caller(trusting, shown)).authenticated


async def test_a_pull_that_waits_ends_when_the_issuer_withdraws_the_key(issuer: Issuer, trusting: Guarded) -> None:
    access = trusting.broker.guard.access
    assert access is not None
    name = f"{trusting.project}/subscriptions/sub"
    await trusting.ok("PUT", f"{trusting.project}/topics/topic", {})
    await trusting.ok("PUT", name, {"topic": f"{trusting.project}/topics/topic"})
    host = issuer.url.removeprefix("http://")
    binding = {"role": "roles/pubsub.subscriber", "members": [f"principal://{host}/subject/7"]}
    await trusting.ok("POST", f"{name}:setIamPolicy", {"policy": {"bindings": [binding]}})
    headers = {"Authorization": issuer.token(trusting).authorization.decode()}
    pulling = asyncio.create_task(
        trusting.client.post(f"/v1/{name}:pull", json={"maxMessages": 1}, headers=headers, timeout=60)
    )
    gate = trusting.broker.gate
    assert gate is not None
    await eventually(lambda: any(call.caller.signed_by for call in gate._open))
    issuer.serve(_jwk(generate_private_key(65537, 2048), "two"))
    access.issuers._issuers[issuer.url][1]._read_at -= MAX_AGE_SECONDS
    await access.issuers.refresh()
    answer = await pulling
    assert (answer.status_code, "has withdrawn the key" in answer.text) == (503, True)
    again = await trusting.client.post(f"/v1/{name}:pull", json={"maxMessages": 1}, headers=headers)
    assert again.status_code == 401


async def test_an_issuer_whose_keys_cannot_be_read_is_told_of_once_and_when_they_can_be_again(
    issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    ticks = 0.0
    described = OidcIssuer(issuer=issuer.url, audiences=["broker"])
    keys = IssuerKeys(described, StateChanges(), ticks=lambda: ticks)
    caplog.set_level("INFO")
    issuer.documents["/keys"] = b"no JSON"
    for _ in range(3):
        with pytest.raises(Unavailable):
            await keys.find("one")
        ticks += AGAIN_SECONDS + 1
    issuer.serve(_jwk(RSA, "one"))
    assert await keys.find("one") is not None
    lines = [line for line in caplog.messages if issuer.url in line and line.startswith("the keys")]
    assert [line.partition(", after")[0] for line in lines] == [
        f"the keys of the issuer {issuer.url} cannot be read: the answer is no JSON",
        f"the keys of the issuer {issuer.url} are read again",
    ]


async def test_an_issuer_that_hangs_holds_up_nobody_whose_key_is_known(
    issuer: Issuer, trusting: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer.hangs = True
    with monkeypatch.context() as patch:
        patch.setattr("broker.access.credentials.issuer_keys.FETCH_SECONDS", 0.5)
        with pytest.raises(Unavailable):
            await _caller(trusting, issuer.token(trusting))
    issuer.hangs = False
    assert trusting.broker.guard.access is not None
    keys = trusting.broker.guard.access.authenticator._issuers._issuers[issuer.url][1]
    keys._tried_at = float("-inf")
    assert (await _caller(trusting, issuer.token(trusting))).authenticated
    issuer.hangs = True
    monkeypatch.setattr("broker.access.credentials.issuer_keys.FETCH_SECONDS", 0.5)
    keys._tried_at = float("-inf")
    unknown = asyncio.create_task(_caller(trusting, issuer.token(trusting, kid="unknown")))
    assert (await _caller(trusting, issuer.token(trusting, jti="known"))).authenticated
    with pytest.raises(Unauthenticated):
        await unknown


@pytest.mark.parametrize(
    "lie",
    [
        {"/.well-known/openid-configuration": {"issuer": "https://elsewhere.example", "jwks_uri": "{url}/keys"}},
        {"/.well-known/openid-configuration": {"issuer": "{url}", "jwks_uri": "http://elsewhere.example/keys"}},
        {"/.well-known/openid-configuration": {"issuer": "{url}", "jwks_uri": "file:///etc/passwd"}},
        {"/.well-known/openid-configuration": [1]},
        {"/.well-known/openid-configuration": b"<html>"},
        {"/keys": {"keys": "none"}},
        {"/keys": {"keys": [{}] * 101}},
        {"/keys": b" " * 1_100_000},
        {"/keys": b'{"keys": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"},
        {"/.well-known/openid-configuration": b'{"issuer": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001},
    ],
    ids=[
        *("another issuer", "cleartext", "a file", "a list", "HTML", "no keys", "too many keys", "too long"),
        *("nested keys", "a nested document"),
    ],
)
async def test_an_issuer_that_lies_is_not_believed(issuer: Issuer, trusting: Guarded, lie: Json) -> None:
    text = {path: body if isinstance(body, bytes) else json.dumps(body) for path, body in lie.items()}
    for path, body in text.items():
        issuer.documents[path] = body if isinstance(body, bytes) else body.replace("{url}", issuer.url).encode()
    with pytest.raises(Unavailable, match="keys of the token's issuer cannot be read"):
        await _caller(trusting, issuer.token(trusting))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[[issuer]", "no TOML"),
        ("[[issuers]]", "tables"),
        ("[[issuer]]\nissuer = 'http://keycloak.example'\naudiences = ['a']", "https://"),
        ("[[issuer]]\nissuer = 'https://keycloak.example'", "needs audiences"),
        ("[[issuer]]\nissuer = 'https://k.example'\naudience = 'a'", "audience is no field"),
        ("[[issuer]]\nissuer = 'https://k.example'\naudiences = 'a'", "audiences must be a list"),
        (
            "[[issuer]]\nissuer = 'https://k.example'\naudiences = ['a']\ndomains = ['p.iam.broker.internal']",
            "nobody but the broker",
        ),
    ],
)
def test_a_file_that_would_trust_too_much_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_issuers(text)
