"""Sessions of the console: how long they last, what ends them, and links that begin one."""

import hashlib
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from urllib.parse import quote

import httpx
import pytest
from sqlalchemy import select, text

from broker.access.sessions.session_rows import delete_ended_sessions
from broker.access.sessions.sessions import IDLE, LASTS, LINK_LASTS, MOST
from broker.db.schema.tables import console_sessions
from tests.fixtures.access import Guarded, guarded
from tests.fixtures.broker import Json

COOKIE = "broker_session"


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[Guarded]:
    async with guarded(database_url, console="on", audit="all") as world:
        await world.ok("PUT", f"{world.project}/topics/orders", {})
        yield world


async def sign_in(world: Guarded, key: Json | None = None) -> str:
    """Returns the secret in the cookie."""
    answer = await world.client.post("/console/login", data={"credential": json.dumps(key or world.admin)})
    assert answer.status_code == 303, answer.text
    return str(world.client.cookies[COOKIE])


async def status(world: Guarded) -> int:
    return (await world.client.get(f"/console/{world.project}/topics")).status_code


async def make_link(world: Guarded, **options: object) -> Json:
    return await world.ok("POST", "signInLinks", {}, **options)


async def open_link(world: Guarded, link: Json, **options: object) -> httpx.Response:
    token = link["path"].partition("#")[2]
    return await world.client.post("/console/link", data={"token": token}, **options)  # type: ignore[arg-type]


# --- how long ---------------------------------------------------------------------------------------------------


async def test_a_session_lasts_while_it_is_used_and_twelve_hours_at_most(world: Guarded) -> None:
    await sign_in(world)
    step = IDLE - timedelta(minutes=1)
    passed = timedelta(0)
    while passed + step < LASTS:
        world.clock.ahead += step
        passed += step
        assert await status(world) == 200, passed
    world.clock.ahead += LASTS - passed
    assert await status(world) == 303
    assert passed > timedelta(hours=11)


async def test_a_session_that_is_not_used_for_an_hour_ends(world: Guarded) -> None:
    await sign_in(world)
    world.clock.ahead += IDLE
    assert await status(world) == 303


async def test_a_session_of_an_access_token_outlives_the_token_while_its_key_exists(world: Guarded) -> None:
    key = await world.key(await world.account("viewer", role="roles/viewer"))
    await world.client.post("/console/login", data={"credential": world.token(key)})
    for _ in range(3):
        world.clock.ahead += timedelta(minutes=50)
        assert await status(world) == 200
    await world.ok("DELETE", key["name"])
    assert await status(world) == 303


@pytest.mark.parametrize("ended", ["the key is deleted", "the account is disabled", "the API key is deleted"])
async def test_a_session_ends_with_its_credential(world: Guarded, ended: str) -> None:
    account = await world.account("viewer", role="roles/viewer")
    if ended == "the API key is deleted":
        made = await world.ok("POST", f"{world.project}/apiKeys", {"roles": ["roles/viewer"]})
        await world.client.post("/console/login", data={"credential": made["keyString"]})
        end = ("DELETE", made["name"])
    else:
        key = await world.key(account)
        await sign_in(world, key)
        end = ("DELETE", key["name"]) if "key" in ended else ("POST", f"{account['name']}:disable")
    address = f"/console/{world.project}/topics?pageToken=x"
    assert await status(world) == 200
    await world.ok(*end)
    led = await world.client.get(address)
    assert (led.status_code, led.headers["location"]) == (303, f"/console/login?next={quote(address, safe='')}")
    login = await world.client.get(led.headers["location"])
    assert "its key was revoked" in login.text
    back = await world.client.post(led.headers["location"], data={"credential": json.dumps(world.admin)})
    assert back.headers["location"] == address


async def test_signing_out_ends_the_session_for_whoever_has_copied_the_cookie(world: Guarded) -> None:
    secret = await sign_in(world)
    await world.client.post("/console/logout")
    assert await status(world) == 303
    async with httpx.AsyncClient(base_url=world.client.base_url, cookies={COOKIE: secret}) as thief:
        assert (await thief.get(f"/console/{world.project}/topics")).status_code == 303


async def test_a_new_session_has_a_new_secret_and_ends_the_one_before(world: Guarded) -> None:
    """Whoever has set the cookie of a victim before does not share the session (fixation)."""
    first = await sign_in(world)
    second = await sign_in(world)
    assert first != second
    async with httpx.AsyncClient(base_url=world.client.base_url, cookies={COOKIE: first}) as other:
        assert (await other.get(f"/console/{world.project}/topics")).status_code == 303
    world.client.cookies.set(COOKIE, "chosen-by-the-attacker", path="/console")
    answer = await world.client.post("/console/login", data={"credential": json.dumps(world.admin)})
    assert "chosen-by-the-attacker" not in answer.headers["set-cookie"]


@pytest.mark.parametrize("forged", ["", "x", "\u00e9", "x" * 4_000, "=", "Li4="])
async def test_a_cookie_that_is_none_of_ours_is_no_session(world: Guarded, forged: str) -> None:
    headers = {"Cookie": f"{COOKIE}={forged}".encode()}
    answer = await world.client.get(f"/console/{world.project}/topics", headers=headers)  # type: ignore[arg-type]
    assert answer.status_code == 303


async def test_the_secret_of_a_session_is_no_credential_of_the_api(world: Guarded) -> None:
    secret = await sign_in(world)
    for headers in (
        {"Authorization": f"Bearer {secret}"},
        {"X-Goog-Api-Key": secret},
        {"Cookie": f"{COOKIE}={secret}"},
    ):
        assert (await world.call("GET", f"{world.project}/topics", headers=headers)).status_code == 401


async def test_the_database_has_digests_and_no_secrets(world: Guarded) -> None:
    secret, token = await sign_in(world), (await make_link(world))["path"].partition("#")[2]
    async with world.database.transaction() as connection:
        rows = (await connection.execute(select(console_sessions))).all()
        whole = (await connection.execute(text("SELECT console_sessions::text FROM console_sessions"))).scalars()
        stored = " ".join(whole)
    assert {row.digest for row in rows} == {hashlib.sha256(one.encode()).digest() for one in (secret, token)}
    assert secret not in stored
    assert token not in stored


async def test_a_principal_has_a_bounded_number_of_sessions_and_ended_ones_are_deleted(world: Guarded) -> None:
    for _ in range(MOST + 5):
        world.clock.ahead += timedelta(milliseconds=1)
        await make_link(world)
    async with world.database.transaction() as connection:
        assert len((await connection.execute(select(console_sessions.c.digest))).all()) == MOST
    async with world.database.connection() as driver:
        await delete_ended_sessions(driver, now=world.now + LINK_LASTS)
    async with world.database.transaction() as connection:
        assert not (await connection.execute(select(console_sessions.c.digest))).all()


# --- links ------------------------------------------------------------------------------------------------------


async def test_a_link_signs_its_maker_in_once(world: Guarded) -> None:
    link = await make_link(world)
    assert link["path"].startswith("/console/link#")
    page = await world.client.get("/console/link")
    assert page.status_code == 200
    assert page.headers["referrer-policy"] == "same-origin"
    answer = await open_link(world, link)
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/")
    assert await status(world) == 200
    again = await open_link(world, link)
    assert (again.status_code, "was used before" in again.text) == (401, True)


@pytest.mark.parametrize("token", ["x", "\u00e9", "x" * 4_000])
async def test_a_token_that_is_none_of_ours_opens_no_link(world: Guarded, token: str) -> None:
    refused = await world.client.post("/console/link", data={"token": token})
    assert (refused.status_code, "The link has expired" in refused.text) == (401, True)


async def test_two_who_open_a_link_at_once_get_one_session(world: Guarded) -> None:
    link = await make_link(world)
    async with httpx.AsyncClient(base_url=world.client.base_url) as other:
        data = {"token": link["path"].partition("#")[2]}
        answers = [
            await client.post("/console/link", data=data) for client in (world.client, other, world.client, other)
        ]
    assert sorted(answer.status_code for answer in answers) == [303, 401, 401, 401]


async def test_a_link_can_do_what_its_maker_can_do(world: Guarded) -> None:
    key = await world.key(await world.account("nobody", role=""))
    await open_link(world, await make_link(world, headers=world.bearer(key)))
    page = await world.client.get(f"/console/{world.project}/topics/orders")
    assert page.status_code == 403
    assert key["client_email"] in page.text


async def test_a_link_expires_after_a_minute(world: Guarded) -> None:
    link = await make_link(world)
    world.clock.ahead += LINK_LASTS
    assert (await open_link(world, link)).status_code == 401


async def test_a_link_of_a_deleted_key_opens_nothing(world: Guarded) -> None:
    key = await world.key(await world.account("viewer", role="roles/viewer"))
    link = await make_link(world, headers=world.bearer(key))
    await world.ok("DELETE", key["name"])
    assert (await open_link(world, link)).status_code == 401
    assert await status(world) == 303


async def test_looking_at_a_link_does_not_use_it_up(world: Guarded) -> None:
    """Chat programs fetch the links in messages."""
    link = await make_link(world)
    for _ in range(2):
        await world.client.get(link["path"])
        await world.client.get("/console/link", params={"token": link["path"].partition("#")[2]})
    assert (await open_link(world, link)).status_code == 303


async def test_a_token_of_a_link_is_no_session_and_the_secret_of_a_session_no_link(world: Guarded) -> None:
    token = (await make_link(world))["path"].partition("#")[2]
    async with httpx.AsyncClient(base_url=world.client.base_url, cookies={COOKIE: token}) as thief:
        assert (await thief.get(f"/console/{world.project}/topics")).status_code == 303
    secret = await sign_in(world)
    assert (await world.client.post("/console/link", data={"token": secret})).status_code == 401


async def test_a_page_of_another_origin_cannot_sign_anybody_in(world: Guarded) -> None:
    link = await make_link(world)
    for headers in (
        {"Origin": "https://evil.example.com", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "https://evil.example.com"},
        {"Origin": "null"},
        {"Host": "evil.example.com"},  # DNS rebinding
    ):
        refused = await open_link(world, link, headers=headers)
        assert (refused.status_code, "set-cookie" in refused.headers) == (403, False), headers
    assert (await open_link(world, link)).status_code == 303


async def test_who_has_no_credential_gets_no_link(world: Guarded) -> None:
    assert (await world.call("POST", "signInLinks", {}, headers={})).status_code == 401


async def test_a_link_is_audited_without_its_token(world: Guarded) -> None:
    link = await make_link(world)
    async with world.database.transaction() as connection:
        rows = await connection.execute(text("SELECT audit_entries::text FROM audit_entries"))
        entries = [row for row in rows.scalars() if "CreateSignInLink" in row]
    assert len(entries) == 1
    assert link["path"].partition("#")[2] not in entries[0]


async def test_a_broker_without_a_console_makes_no_link(database_url: str) -> None:
    async with guarded(database_url, console="off") as world:
        answer = await world.call("POST", "signInLinks", {})
    assert (answer.status_code, "--console on" in answer.text) == (400, True)


# --- a console that only reads ----------------------------------------------------------------------------------


async def test_a_console_that_only_reads_takes_no_form_but_those_of_the_sign_in(database_url: str) -> None:
    async with guarded(database_url, console="on", console_read_only=True) as world:
        await sign_in(world)
        page = await world.client.get("/console/help")
        assert "Read-only" in page.text
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            for path in (f"{world.project}/topics", f"{world.project}/subscriptions/s:redrive", "login/x", "help"):
                answer = await world.client.request(method, f"/console/{path}")
                assert answer.status_code == 403, (method, path)
                assert "--console-read-only" in answer.text
        assert (await open_link(world, await make_link(world))).status_code == 303
        assert (await world.client.post("/console/logout")).status_code == 303
        assert await status(world) == 303
