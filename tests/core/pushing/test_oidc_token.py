"""The tokens of pushes: a receiver verifies them with the usual libraries, and keys come and go without a gap."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import google.auth.transport.requests
import jwt
import pytest
import requests
import uvicorn
from google.oauth2 import id_token
from sqlalchemy import text
from starlette.applications import Starlette

from broker.access.secrets.keys import format_keys, make_key
from broker.access.secrets.secrets import Secrets
from broker.api.pages.well_known import well_known_routes
from broker.core.process.database_clock import DatabaseClock
from broker.core.pushing.request import oidc_token
from broker.core.pushing.request.oidc_token import (
    MAX_TOKENS,
    PUBLISHED_AFTER,
    PUBLISHED_AHEAD,
    SIGNS_FOR,
    TokenSigner,
)
from broker.core.pushing.request.signing_key_rows import list_signing_keys
from broker.db.driver.database import Database
from broker.model.errors import Unavailable

ISSUER = "https://broker.example.com"
EMAIL = "pusher@p.iam.gserviceaccount.com"
AUDIENCE = "https://endpoint.example.com/push?a=b"
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


class SetClock(DatabaseClock):
    """A clock that a test sets."""

    def __init__(self, time: datetime) -> None:
        self.time = time

    def now(self) -> datetime:
        return self.time


@dataclass
class Signers:
    """Some processes on one database, at one time."""

    database: Database
    clock: SetClock

    def another(self) -> TokenSigner:
        return TokenSigner(self.database, self.clock, issuer=ISSUER)

    async def keys(self) -> list[str]:
        async with self.database.transaction() as connection:
            return [key.key_id for key in await list_signing_keys(connection)]

    def signed_by(self, signer: TokenSigner, audience: str = AUDIENCE) -> str:
        key_id: str = jwt.get_unverified_header(signer.token(EMAIL, audience, now=self.clock.time))["kid"]
        return key_id


@pytest.fixture
async def signers(database: Database) -> Signers:
    """They make the first key, too."""
    async with database.transaction() as connection:
        await connection.execute(text("DELETE FROM signing_keys"))
    return Signers(database, SetClock(datetime.now(UTC)))


def published(signer: TokenSigner) -> list[str]:
    return [key["kid"] for key in signer.published_keys()["keys"]]


def verified(signer: TokenSigner, token: str, **options: Any) -> dict[str, Any]:
    keys = jwt.PyJWKSet.from_dict(dict(signer.published_keys()))
    key = keys[jwt.get_unverified_header(token)["kid"]]
    claims: dict[str, Any] = jwt.decode(token, key, algorithms=["RS256"], audience=AUDIENCE, **options)
    return claims


async def test_a_token_has_googles_claims(signers: Signers) -> None:
    signer = signers.another()
    await signer.refresh()
    token = signer.token(EMAIL, AUDIENCE, now=signers.clock.time)
    assert jwt.get_unverified_header(token) == {"alg": "RS256", "kid": published(signer)[0], "typ": "JWT"}
    claims = verified(signer, token)
    issued, subject = int(signers.clock.time.timestamp()), claims["sub"]
    assert claims == {
        "iss": ISSUER, "aud": AUDIENCE, "azp": subject, "sub": subject, "email": EMAIL, "email_verified": True,
        "iat": issued, "exp": issued + 3600,
    }  # fmt: skip
    assert len(subject) == 21
    assert subject.isdecimal()


async def test_only_public_parts_of_keys_are_published(signers: Signers) -> None:
    signer = signers.another()
    await signer.refresh()
    [key] = signer.published_keys()["keys"]
    assert set(key) == {"kty", "use", "alg", "kid", "n", "e"}


async def test_there_is_no_token_before_the_keys_are_loaded(signers: Signers) -> None:
    with pytest.raises(Unavailable):
        signers.another().token(EMAIL, AUDIENCE, now=signers.clock.time)


async def test_a_token_is_used_again_for_fifty_minutes(signers: Signers) -> None:
    signer, start = signers.another(), signers.clock.time
    await signer.refresh()
    first = signer.token(EMAIL, AUDIENCE, now=start)
    assert signer.token(EMAIL, AUDIENCE, now=start + 49 * MINUTE) == first
    assert signer.token(EMAIL, AUDIENCE, now=start + 50 * MINUTE) != first
    assert signer.token(EMAIL, AUDIENCE + "2", now=start) != first
    assert signer.token("other@example.com", AUDIENCE, now=start) != first


async def test_only_so_many_tokens_are_kept(signers: Signers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oidc_token, "MAX_TOKENS", 3)
    assert MAX_TOKENS > 3
    signer = signers.another()
    await signer.refresh()
    for n in range(10):
        signer.token(EMAIL, str(n), now=signers.clock.time)
    assert [audience for _, audience in signer._tokens] == ["7", "8", "9"]


async def test_processes_that_start_at_once_agree_on_a_key(signers: Signers) -> None:
    some = [signers.another() for _ in range(4)]
    await asyncio.gather(*(signer.refresh() for signer in some))
    [key] = await signers.keys()
    assert {signers.signed_by(signer) for signer in some} == {key}


async def test_who_cannot_decrypt_the_newest_key_signs_nothing_and_makes_no_other(
    signers: Signers, tmp_path: Path
) -> None:
    sealing, wrong = (Secrets(str(keys_in(tmp_path / name))) for name in ("right", "wrong"))
    sealing.is_sealing = wrong.is_sealing = True
    signer, other = (
        TokenSigner(signers.database, signers.clock, issuer=ISSUER, secrets=secrets) for secrets in (sealing, wrong)
    )
    await signer.refresh()
    [first] = await signers.keys()
    signers.clock.time += SIGNS_FOR
    await other.refresh()
    assert await signers.keys() == [first]
    assert "which" in other.why_none(signers.clock.time)
    with pytest.raises(Unavailable):
        other.token(EMAIL, AUDIENCE, now=signers.clock.time)
    await signer.refresh()
    assert len(await signers.keys()) == 2
    assert signer.why_none(signers.clock.time) == ""


def keys_in(path: Path) -> Path:
    path.write_text(format_keys([make_key()]))
    return path


async def test_a_successor_is_published_a_day_before_it_signs(signers: Signers) -> None:
    some = [signers.another() for _ in range(3)]
    await asyncio.gather(*(signer.refresh() for signer in some))
    [first] = await signers.keys()

    signers.clock.time += SIGNS_FOR - PUBLISHED_AHEAD - MINUTE
    await some[0].refresh()
    assert await signers.keys() == [first]

    signers.clock.time += 2 * MINUTE
    await asyncio.gather(*(signer.refresh() for signer in some))
    keys = await signers.keys()
    assert keys[0] == first
    assert len(keys) == 2
    for signer in some:
        assert published(signer) == keys
        assert signers.signed_by(signer) == first

    signers.clock.time += PUBLISHED_AHEAD
    for signer in some:  # without another refresh
        assert signers.signed_by(signer) == keys[1]


async def test_an_old_key_is_published_until_its_last_token_has_expired(signers: Signers) -> None:
    signer = signers.another()
    await signer.refresh()
    signers.clock.time += SIGNS_FOR - HOUR
    await signer.refresh()
    [_, successor] = await signers.keys()
    signers.clock.time += PUBLISHED_AHEAD - MINUTE  # it was late, and so signs late
    last = signer.token(EMAIL, "the last", now=signers.clock.time)
    signers.clock.time += MINUTE + PUBLISHED_AFTER - MINUTE
    await signer.refresh()
    assert jwt.get_unverified_header(last)["kid"] in published(signer)
    assert signers.signed_by(signer) == successor
    signers.clock.time += 2 * MINUTE
    await signer.refresh()
    assert published(signer) == await signers.keys() == [successor]


async def test_after_a_long_time_without_a_broker_the_old_key_signs_until_its_successor_is_known(
    signers: Signers,
) -> None:
    signer = signers.another()
    await signer.refresh()
    signers.clock.time += 100 * DAY
    late = signers.another()
    await late.refresh()
    first, second = await signers.keys()
    assert published(late) == [first, second]
    assert signers.signed_by(late) == first
    signers.clock.time += PUBLISHED_AHEAD
    assert signers.signed_by(late, "another") == second


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.serves = threading.Event()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.serves.set()


@contextmanager
def serving(signer: TokenSigner, *, is_configured: bool = True) -> Iterator[str]:
    """The well-known documents, over HTTP."""
    routes = well_known_routes(signer.published_keys, issuer=ISSUER, is_configured=is_configured)
    server = _Server(uvicorn.Config(Starlette(routes=routes), port=0, log_config=None, lifespan="off"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert server.serves.wait(20)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)


async def test_a_receiver_verifies_the_token_with_pyjwt_and_with_google_auth(signers: Signers) -> None:
    signer = signers.another()
    await signer.refresh()
    token = signer.token(EMAIL, AUDIENCE, now=signers.clock.time)
    with serving(signer) as url:
        discovered = await asyncio.to_thread(_get, f"{url}/.well-known/openid-configuration")
        assert discovered["issuer"] == ISSUER
        assert discovered["jwks_uri"] == f"{ISSUER}/.well-known/jwks.json"
        client = jwt.PyJWKClient(f"{url}/.well-known/jwks.json")
        key = await asyncio.to_thread(client.get_signing_key_from_jwt, token)
        claims = jwt.decode(token, key, algorithms=["RS256"], audience=AUDIENCE, issuer=ISSUER)
        assert claims["email"] == EMAIL
        for path in ("/oauth2/v3/certs", "/.well-known/jwks.json"):
            assert await asyncio.to_thread(_verify_as_google, token, url + path) == claims
        with pytest.raises(jwt.InvalidSignatureError):
            await asyncio.to_thread(_verify_as_google, token[:-8] + "AAAAAAAA", url + "/oauth2/v3/certs")


@pytest.mark.parametrize(
    ("is_configured", "cached"), [(True, "public, max-age=300"), (False, "no-store")], ids=["configured", "not"]
)
async def test_discovery_takes_nothing_from_the_request(signers: Signers, is_configured: bool, cached: str) -> None:
    """A forged Host header would have receivers, and caches before them, believe somebody else's keys."""
    forged = {"Host": "evil.example", "X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "http"}
    with serving(signers.another(), is_configured=is_configured) as url:
        where = f"{url}/.well-known/openid-configuration"
        response = await asyncio.to_thread(requests.get, where, headers=forged, timeout=20)
    assert response.json()["jwks_uri"] == f"{ISSUER}/.well-known/jwks.json"
    assert response.headers["Cache-Control"] == cached


def _get(url: str) -> Any:
    response = requests.get(url, timeout=20)
    assert response.headers["Cache-Control"] == "public, max-age=300"
    return response.json()


def _verify_as_google(token: str, certs_url: str) -> Any:
    with requests.Session() as session:
        transport = google.auth.transport.requests.Request(session)
        return id_token.verify_token(token, transport, audience=AUDIENCE, certs_url=certs_url)
