"""Signing in to the console of a broker that requires credentials."""

import json
from collections.abc import AsyncIterator

import httpx
import pytest

from tests.fixtures.access import Guarded, guarded

HOME = "/console/"


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[Guarded]:
    async with guarded(database_url, console="auto") as world:
        await world.ok("PUT", f"{world.project}/topics/orders", {})
        yield world


async def sign_in(world: Guarded, credential: str, **options: object) -> httpx.Response:
    return await world.client.post("/console/login", data={"credential": credential}, **options)  # type: ignore[arg-type]


async def show(world: Guarded, path: str) -> httpx.Response:
    return await world.client.get(f"/console/{path}")


async def test_a_viewer_without_a_credential_is_led_to_the_sign_in_and_back(world: Guarded) -> None:
    address = f"/console/{world.project}/topics?pageToken=x"
    led = await world.client.get(address)
    assert led.status_code == 303
    login = led.headers["location"]
    assert login.startswith("/console/login?next=")
    assert (await world.client.get(login)).status_code == 200
    back = await world.client.post(login, data={"credential": json.dumps(world.admin)})
    assert (back.status_code, back.headers["location"]) == (303, address)


@pytest.mark.parametrize("kind", ["key file", "API key", "access token"])
async def test_each_kind_of_credential_opens_the_pages_that_it_may_see(world: Guarded, kind: str) -> None:
    account = await world.account("viewer", role="roles/viewer")
    if kind == "key file":
        credential = json.dumps(await world.key(account))
    elif kind == "API key":
        created = await world.ok("POST", f"{world.project}/apiKeys", {"roles": ["roles/viewer"]})
        credential = created["keyString"]
    else:
        credential = world.token(await world.key(account))
    answer = await sign_in(world, credential)
    assert (answer.status_code, answer.headers["location"]) == (303, HOME), answer.text
    [cookie] = answer.headers.get_list("set-cookie")
    assert "HttpOnly" in cookie
    assert "samesite=lax" in cookie.lower()
    assert "Path=/console" in cookie
    assert credential not in cookie
    page = await show(world, f"{world.project}/topics")
    assert page.status_code == 200
    assert "orders" in page.text


async def test_a_viewer_sees_what_the_credential_may_see(world: Guarded) -> None:
    account = await world.account("nobody", role="")
    await sign_in(world, json.dumps(await world.key(account)))
    page = await show(world, f"{world.project}/topics/orders")
    assert page.status_code == 403
    assert "pubsub.topics.get" in page.text


async def test_a_key_that_is_deleted_opens_no_page(world: Guarded) -> None:
    account = await world.account("viewer", role="roles/viewer")
    key = await world.key(account)
    await sign_in(world, json.dumps(key))
    assert (await show(world, f"{world.project}/topics")).status_code == 200
    await world.ok("DELETE", key["name"])
    led = await show(world, f"{world.project}/topics")
    assert led.headers["location"].startswith("/console/login")


async def test_the_api_takes_no_cookie(world: Guarded) -> None:
    await sign_in(world, json.dumps(world.admin))
    assert (await world.client.get(f"/v1/{world.project}/topics")).status_code == 401


async def test_signing_out_forgets_the_credential(world: Guarded) -> None:
    await sign_in(world, json.dumps(world.admin))
    await world.client.post("/console/logout")
    assert (await show(world, f"{world.project}/topics")).status_code == 303


@pytest.mark.parametrize(
    ("credential", "why"),
    [
        ("", "Paste a key file"),
        ("{", "neither JSON nor a key"),
        ("{}", "not the key file of a service account"),
        ("two words", "has no spaces"),
        ("AIzaUnknownUnknownUnknownUnknown", "not valid"),
        ("a.b.c", "Request had invalid authentication credentials"),
        ("x" * 70_000, "longer than 64 KB"),
        ("\u00e9", "has no spaces"),
    ],
)
async def test_other_credentials_are_refused_with_a_reason(world: Guarded, credential: str, why: str) -> None:
    answer = await sign_in(world, credential)
    assert answer.status_code == 401
    assert why in answer.text
    assert "set-cookie" not in answer.headers


async def test_pages_of_other_origins_cannot_sign_in_or_out(world: Guarded) -> None:
    for path in ("login", "logout"):
        headers = {"Origin": "https://evil.example.com", "Sec-Fetch-Site": "cross-site"}
        assert (await world.client.post(f"/console/{path}", headers=headers)).status_code == 403


@pytest.mark.parametrize("target", ["//evil.example.com", "https://evil.example.com", "/v1/x", "/console/\\\\evil"])
async def test_the_sign_in_leads_nowhere_else(world: Guarded, target: str) -> None:
    answer = await world.client.post(
        "/console/login", params={"next": target}, data={"credential": json.dumps(world.admin)}
    )
    assert answer.headers["location"] == HOME
