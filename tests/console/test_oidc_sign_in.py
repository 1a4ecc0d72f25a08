"""Signing in to the console at an OpenID provider, and each way in which an answer of the provider can be wrong."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from broker.access.credentials import code_flow
from broker.access.credentials.code_flow import ANSWER_SECONDS
from broker.access.credentials.issuer_keys import IssuerKeys
from broker.access.principals.oidc_issuer import OidcIssuer, SignInClient, parse_issuers
from broker.console.oidc_sign_in import LASTS
from tests.fixtures.access import Guarded, guarded
from tests.fixtures.oidc_provider import CLIENT, SECRET, STRANGE_KEY, Provider, running_provider

BASE = (
    "http://localhost:18085"  # where the provider sends browsers back to; tests follow it to the broker's own port
)
ADA = "user:ada@example.com"


@dataclass
class World:
    broker: Guarded
    provider: Provider

    async def start(self, target: str = "") -> httpx.Response:
        """Follow the link of the sign-in page, as far as the provider's address."""
        query = {"issuer": "0", "next": target}
        return await self.broker.client.get("/console/oidc/start", params=query)

    async def ask_provider(self, started: httpx.Response) -> str:
        """Sign in at the provider.  Returns the address that it sends the browser to, without the host."""
        async with httpx.AsyncClient() as browser:
            answer = await browser.get(started.headers["location"])
        assert answer.headers["location"].startswith(f"{BASE}/console/oidc/callback?")
        return str(answer.headers["location"]).removeprefix(BASE)

    async def sign_in(self, target: str = "") -> httpx.Response:
        return await self.broker.client.get(await self.ask_provider(await self.start(target)))

    async def is_signed_in(self) -> bool:
        return (await self.broker.client.get(f"/console/{self.broker.project}/topics")).status_code == 200


@pytest.fixture
async def world(database_url: str, tmp_path: Path) -> AsyncIterator[World]:
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET}\n")
    async with running_provider() as provider:
        provider.claims["email_verified"] = True
        client = SignInClient(client_id=CLIENT, client_secret_file=str(secret), title="Example")
        issuer = OidcIssuer(issuer=provider.url, audiences=["broker"], domains=["example.com"], sign_in=client)
        gone = OidcIssuer(issuer="http://127.0.0.1:1", audiences=[], sign_in=client)
        async with guarded(database_url, console="on", issuer=BASE, oidc_issuers=[issuer, gone]) as broker:
            policy = {"bindings": [{"role": "roles/viewer", "members": [ADA]}]}
            await broker.ok("POST", f"{broker.project}:setIamPolicy", {"policy": policy})
            await broker.ok("PUT", f"{broker.project}/topics/orders", {})
            yield World(broker, provider)


async def test_a_person_signs_in_at_the_provider_and_returns_to_the_page(world: World) -> None:
    address = f"/console/{world.broker.project}/topics"
    led = await world.broker.client.get(address)
    login = await world.broker.client.get(led.headers["location"])
    assert "Sign in with Example" in login.text
    assert "/console/oidc/start?issuer=0&amp;next=%2Fconsole%2F" in login.text
    answer = await world.sign_in(address)
    assert (answer.status_code, answer.headers["location"]) == (303, address)
    page = await world.broker.client.get(address)
    assert page.status_code == 200
    assert "orders" in page.text
    assert ADA in page.text


async def test_the_provider_is_asked_with_pkce_state_and_nonce_and_the_secrets_stay_here(world: World) -> None:
    started = await world.start()
    asked = {name: values[0] for name, values in parse_qs(urlsplit(started.headers["location"]).query).items()}
    assert asked.pop("tenant") == "a"
    secrets = [asked.pop(name) for name in ("state", "nonce", "code_challenge")]
    assert len(set(secrets)) == 3
    assert all(len(secret) == 43 for secret in secrets)
    assert asked == {
        "response_type": "code",
        "client_id": CLIENT,
        "redirect_uri": f"{BASE}/console/oidc/callback",
        "scope": "openid email profile",
        "code_challenge_method": "S256",
    }
    [cookie] = started.headers.get_list("set-cookie")
    assert "HttpOnly" in cookie
    assert "samesite=lax" in cookie.lower()
    assert not any(secret in cookie for secret in secrets)
    again = parse_qs(urlsplit((await world.start()).headers["location"]).query)
    assert not {again[name][0] for name in ("state", "nonce", "code_challenge")}.intersection(secrets)


async def test_an_address_that_the_issuer_may_not_speak_for_is_no_user(world: World) -> None:
    world.provider.claims["email"] = "ada@elsewhere.example.org"
    await world.sign_in()
    page = await world.broker.client.get(f"/console/{world.broker.project}/topics/orders")
    assert page.status_code == 403
    authority = world.provider.url.removeprefix("http://")
    assert f"principal://{authority}/subject/7" in page.text


# --- attacks ----------------------------------------------------------------------------------------------------


async def test_an_answer_with_another_state_is_refused(world: World) -> None:
    address = await world.ask_provider(await world.start())
    state = parse_qs(urlsplit(address).query)["state"][0]
    for forged in ("", "x", state[:-1], state[::-1], "\u00e9"):
        answer = await world.broker.client.get("/console/oidc/callback", params={"state": forged, "code": "x"})
        assert answer.status_code == 400, forged
        assert "has not asked for this sign-in" in answer.text
    assert not await world.is_signed_in()


async def test_an_answer_that_another_browser_asked_for_is_refused(world: World) -> None:
    """The attacker signs in, and leads a victim to the answer, to have the victim use the attacker's session."""
    address = await world.ask_provider(await world.start())
    async with httpx.AsyncClient(base_url=world.broker.client.base_url) as victim:
        answer = await victim.get(address)
        assert answer.status_code == 400
        assert "broker_session" not in victim.cookies
        await victim.get("/console/oidc/start", params={"issuer": "0"})
        assert (await victim.get(address)).status_code == 400
        assert "broker_session" not in victim.cookies


async def test_an_answer_is_good_once(world: World) -> None:
    started = await world.start()
    address, cookies = await world.ask_provider(started), dict(world.broker.client.cookies)
    assert (await world.broker.client.get(address)).status_code == 303
    assert (await world.broker.client.get(address)).status_code == 400  # the cookie is gone
    async with httpx.AsyncClient(base_url=world.broker.client.base_url, cookies=cookies) as thief:
        replayed = await thief.get(address)
    assert replayed.status_code == 401
    assert "invalid_grant" in replayed.text
    assert world.provider.refused == ["the code is unknown or was used"]


async def test_a_code_of_another_sign_in_fails_by_its_verifier(world: World) -> None:
    stolen = parse_qs(urlsplit(await world.ask_provider(await world.start())).query)["code"][0]
    own = parse_qs(urlsplit(await world.ask_provider(await world.start())).query)["state"][0]
    answer = await world.broker.client.get("/console/oidc/callback", params={"state": own, "code": stolen})
    assert answer.status_code == 401
    assert world.provider.refused == ["the verifier is wrong"]


async def test_a_sign_in_that_took_too_long_is_refused(world: World) -> None:
    address = await world.ask_provider(await world.start())
    world.broker.clock.ahead += LASTS
    answer = await world.broker.client.get(address)
    assert answer.status_code == 401
    assert "longer than 10 minutes" in answer.text


@pytest.mark.parametrize(
    ("breaks", "why"),
    [
        ({"nonce": "another"}, "nonce"),
        ({"nonce": None}, "nonce"),
        ({"nonce": "\ud800"}, "nonce"),
        ({"aud": "another client"}, "aud"),
        ({"aud": [CLIENT, "another"]}, "azp"),
        ({"aud": [CLIENT, "another"], "azp": "another"}, "azp"),
        ({"iss": "http://127.0.0.1:1"}, "iss"),
        ({"exp": 1}, "expired"),
        ({"exp": None}, "exp"),
        ({"iat": 4_000_000_000, "exp": 4_000_000_300}, "token"),
        ({"sub": None}, "sub"),
        ({"sub": "a\0b", "email": None}, "cannot be stored"),
    ],
)
async def test_an_id_token_that_does_not_answer_this_sign_in_is_refused(
    world: World, breaks: dict[str, Any], why: str
) -> None:
    world.provider.breaks = breaks
    answer = await world.sign_in()
    assert answer.status_code == 401, answer.text
    assert why in answer.text
    assert "Back to the sign-in" in answer.text
    assert not await world.is_signed_in()


@pytest.mark.parametrize("signature", ["another key", "an unknown key", "HS256", "none"])
async def test_an_id_token_that_is_not_signed_by_the_issuer_is_refused(world: World, signature: str) -> None:
    if signature in ("another key", "an unknown key"):
        world.provider.key = STRANGE_KEY
        world.provider.key_id = "one" if signature == "another key" else "two"
    else:
        world.provider.algorithm = signature
        world.provider.key = None if signature == "none" else world.provider.key  # type: ignore[assignment]
    answer = await world.sign_in()
    assert answer.status_code == 401, answer.text
    assert not await world.is_signed_in()


async def test_an_answer_of_another_issuer_is_refused(world: World) -> None:
    world.provider.answer = {"code": "code", "iss": "https://mixed-up.example.com"}
    answer = await world.sign_in()
    assert answer.status_code == 400
    assert "Another identity provider has answered" in answer.text


@pytest.mark.parametrize(
    "target", ["//evil.example.com", "https://evil.example.com", "/v1/x", "/console/..//evil", "/console/\t/evil"]
)
async def test_the_sign_in_leads_nowhere_else(world: World, target: str) -> None:
    assert (await world.sign_in(target)).headers["location"] == "/console/"


async def test_a_cookie_that_somebody_else_made_up_is_refused(world: World) -> None:
    for value in ("x", "W10=", "WzEsIDAsICIvIiwgIjIwMjYtMDEtMDEiXQ==", "W251bGwsIDAsIG51bGwsIG51bGxd"):
        async with httpx.AsyncClient(
            base_url=world.broker.client.base_url, cookies={"broker_oidc": value}
        ) as client:
            answer = await client.get("/console/oidc/callback", params={"state": "x", "code": "y"})
            assert answer.status_code == 400, value


# --- the provider's troubles ------------------------------------------------------------------------------------


async def test_a_refusal_of_the_provider_is_shown_as_text(world: World) -> None:
    world.provider.answer = {"error": "access_denied", "error_description": "<script>alert(1)</script>"}
    answer = await world.sign_in()
    assert answer.status_code == 401
    assert "access_denied" in answer.text
    assert "<script>alert" not in answer.text


@pytest.mark.parametrize("step", ["discovery", "exchange"])
async def test_a_provider_that_is_slow_is_given_up_with_the_next_step(
    world: World, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    back = await world.ask_provider(await world.start()) if step == "exchange" else ""
    monkeypatch.setattr(code_flow, "ANSWER_SECONDS", 0.2)
    world.provider.hangs = {"/.well-known/openid-configuration" if step == "discovery" else "/token"}
    answer = await (world.start() if step == "discovery" else world.broker.client.get(back))
    assert answer.status_code == 503
    assert "no answer within" in answer.text
    assert "sign in with a key" in answer.text
    assert ANSWER_SECONDS <= 10  # the real one: a person waits for it


@pytest.mark.parametrize(
    "document", [{"issuer": "https://other.example"}, {"token_endpoint": "http://far.example"}]
)
async def test_a_provider_that_leads_elsewhere_is_not_believed(world: World, document: dict[str, str]) -> None:
    world.provider.document = document
    assert (await world.start()).status_code == 503


async def test_a_provider_that_is_down_is_told_of(world: World) -> None:
    world.provider.token_status = 502
    answer = await world.sign_in()
    assert (answer.status_code, "it answers 502" in answer.text) == (503, True)
    answer = await world.broker.client.get("/console/oidc/start", params={"issuer": "1"})
    assert answer.status_code == 503
    assert "The identity provider http://127.0.0.1:1 cannot be asked now" in answer.text
    assert "Back to the sign-in" in answer.text


async def test_a_session_ends_when_the_issuer_withdraws_the_key_that_has_signed_its_token(world: World) -> None:
    await world.sign_in()
    assert await world.is_signed_in()
    keys = _keys(world)
    world.provider.public = STRANGE_KEY
    keys._begin_fetch(0.0)
    assert keys._fetch is not None
    await keys._fetch
    assert not await world.is_signed_in()


async def test_a_session_outlives_a_restart_of_the_broker_if_the_issuer_still_has_the_key(world: World) -> None:
    """A process that has just started has read no keys."""
    await world.sign_in()
    keys = _keys(world)
    keys._keys, keys._read_at, keys._tried_at = {}, float("-inf"), float("-inf")
    assert await world.is_signed_in()
    assert keys._keys


async def test_a_session_holds_in_a_process_that_has_not_read_the_new_key_of_the_issuer(world: World) -> None:
    """The session began in another process, with a key that is newer than those that this one has read."""
    await world.sign_in()
    keys = _keys(world)
    keys._keys, keys._tried_at = {}, float("-inf")
    assert await world.is_signed_in()
    assert keys._keys


async def test_a_session_that_has_ended_says_so_also_while_another_issuer_is_down(world: World) -> None:
    await world.sign_in()
    keys = _keys(world)
    world.provider.public = STRANGE_KEY
    keys._begin_fetch(keys._ticks())
    assert keys._fetch is not None
    await keys._fetch
    led = await world.broker.client.get(f"/console/{world.broker.project}/topics")
    assert (led.status_code, led.headers["location"].partition("?")[0]) == (303, "/console/login")


def _keys(world: World) -> IssuerKeys:
    access = world.broker.broker.guard.access
    assert access is not None
    return access.issuers._issuers[world.provider.url][1]


async def test_an_unknown_provider_is_not_found(world: World) -> None:
    for number in ("2", "-1", "x", "", "99999999999"):
        answer = await world.broker.client.get("/console/oidc/start", params={"issuer": number})
        assert answer.status_code == 404, number


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("", "needs client_id"),
        ('client_id = "a"\nscopes = ["email"]', "must have openid"),
        ('client_id = "a"\nredirect_url = "http://broker.example.com/x"', "https"),
        ('client_id = "a"\nsecret = "b"', "secret is no field"),
    ],
)
def test_a_wrong_client_is_refused_at_the_start(table: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_issuers(f'[[issuer]]\nissuer = "https://a.example"\n[issuer.sign_in]\n{table}')


def test_an_issuer_for_the_sign_in_alone_takes_no_tokens_of_others() -> None:
    [issuer] = parse_issuers('[[issuer]]\nissuer = "https://a.example"\n[issuer.sign_in]\nclient_id = "a"')
    assert not issuer.audiences
    assert issuer.sign_in == SignInClient(client_id="a")
    assert timedelta(0) < LASTS
