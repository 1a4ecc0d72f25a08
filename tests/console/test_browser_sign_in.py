"""Signing in with a real browser: by link, at a provider, again after a key was revoked, and by a share link."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, BrowserContext, Page, Request, async_playwright, expect

from broker.access.principals.oidc_issuer import OidcIssuer, SignInClient
from tests.console.chromium import CHROMIUM, CSP_EVENTS, IN_CHROMIUM, OPTIONS, PATIENCE_MILLISECONDS
from tests.fixtures.access import Guarded, guarded
from tests.fixtures.broker import eventually
from tests.fixtures.oidc_provider import CLIENT, SECRET, Provider, running_provider
from tests.fixtures.push_sink import PushSink

pytestmark = [*IN_CHROMIUM, pytest.mark.ci]
BASE = "http://localhost:18085"  # which the browser resolves to the broker's port


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with running_provider() as running:
        running.claims["email_verified"] = True
        yield running


@pytest.fixture
async def world(database_url: str, provider: Provider, tmp_path: Path) -> AsyncIterator[Guarded]:
    (tmp_path / "secret").write_text(SECRET)
    client = SignInClient(client_id=CLIENT, client_secret_file=str(tmp_path / "secret"), title="Example")
    issuer = OidcIssuer(issuer=provider.url, audiences=["broker"], domains=["example.com"], sign_in=client)
    async with guarded(database_url, console="on", issuer=BASE, oidc_issuers=[issuer]) as world:
        policy = {"bindings": [{"role": "roles/viewer", "members": ["user:ada@example.com"]}]}
        await world.ok("POST", f"{world.project}:setIamPolicy", {"policy": policy})
        await world.ok("PUT", f"{world.project}/topics/orders", {})
        yield world


@pytest.fixture
async def context(world: Guarded) -> AsyncIterator[BrowserContext]:
    port = urlsplit(str(world.client.base_url)).port
    rules = f"--host-resolver-rules=MAP localhost:18085 127.0.0.1:{port},MAP broker.internal:18085 127.0.0.1:{port}"
    async with async_playwright() as playwright:
        browser: Browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=[*OPTIONS, rules])
        context = await browser.new_context()
        context.set_default_timeout(PATIENCE_MILLISECONDS)
        await context.add_init_script(CSP_EVENTS)
        yield context
        await browser.close()


async def violations(page: Page) -> list[str]:
    found: list[str] = await page.evaluate("window.violations")
    return found


async def test_a_person_signs_in_at_a_provider_and_arrives_at_the_page(
    world: Guarded, context: BrowserContext
) -> None:
    page = await context.new_page()
    address = f"{BASE}/console/{world.project}/topics/orders"
    await page.goto(address)
    assert await violations(page) == []
    await page.get_by_role("link", name="Sign in with Example").click()
    await page.wait_for_url(address)
    await expect(page.locator(".who")).to_have_text("user:ada@example.com")
    assert await violations(page) == []
    await page.get_by_role("button", name="Sign out").click()
    await page.wait_for_url("**/console/login")


async def test_a_link_signs_in_and_leaves_its_token_neither_in_the_address_nor_in_requests(
    world: Guarded, context: BrowserContext
) -> None:
    made = await world.ok("POST", "signInLinks", {})
    token = made["path"].partition("#")[2]
    page, seen = await context.new_page(), list[str]()

    def note(request: Request) -> None:
        seen.append(request.url.partition("#")[0] + str(request.headers.get("referer", "")))

    page.on("request", note)
    await page.goto(BASE + made["path"])
    await expect(page.locator(".who")).to_have_text(f"serviceAccount:{world.admin['client_email']}")
    assert token not in page.url
    assert not any(token in one for one in seen)
    assert await violations(page) == []


async def test_forms_are_taken_over_http_from_another_machine(world: Guarded, context: BrowserContext) -> None:
    """There browsers send no Sec-Fetch-Site, and the origin alone says whose page a form is of."""
    page = await context.new_page()
    await page.goto("http://broker.internal:18085" + (await world.ok("POST", "signInLinks", {}))["path"])
    await expect(page.locator(".who")).to_have_text(f"serviceAccount:{world.admin['client_email']}")
    assert not await page.evaluate("isSecureContext")


async def test_a_link_asks_before_it_replaces_a_session(world: Guarded, context: BrowserContext) -> None:
    page = await context.new_page()
    await page.goto(BASE + (await world.ok("POST", "signInLinks", {}))["path"])
    await expect(page.locator(".who")).to_be_visible()
    key = await world.key(await world.account("another", role="roles/viewer"))
    link = await world.ok("POST", "signInLinks", {}, headers=world.bearer(key))
    await page.goto("about:blank")
    await page.goto(BASE + link["path"])
    await expect(page.get_by_text("only if you have made the link yourself")).to_be_visible()
    assert "#" not in page.url
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.locator(".who")).to_have_text(f"serviceAccount:{key['client_email']}")


async def test_a_page_says_that_its_key_was_revoked_and_returns_after_the_sign_in(
    world: Guarded, context: BrowserContext
) -> None:
    key = await world.key(await world.account("viewer", role="roles/viewer"))
    page, address = await context.new_page(), f"{BASE}/console/{world.project}/topics/orders?range=6h"
    await page.goto(address)
    await page.get_by_label("Key file").fill(json.dumps(key))
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_url(address)
    await world.ok("DELETE", key["name"])
    told = page.locator("[data-notice]")
    await expect(told).to_contain_text("its key was revoked")
    await told.get_by_role("link", name="Sign in again").click()
    await expect(page.get_by_role("status")).to_contain_text("You are signed out")
    another = await world.key(await world.account("another", role="roles/viewer"))
    await page.get_by_label("Key file").fill(json.dumps(another))
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_url(address)
    await expect(page.get_by_role("heading", name="orders").first).to_be_visible()


@pytest.mark.parametrize("scripts", [True, False])
async def test_a_share_link_opens_its_page(world: Guarded, context: BrowserContext, scripts: bool) -> None:
    hook = f"{world.project}/subscriptions/hook"
    body = {"topic": f"{world.project}/topics/orders", "pushConfig": {"pushEndpoint": "http://127.0.0.1:9/hook"}}
    await world.ok("PUT", hook, body)
    link = await world.ok("POST", f"{hook}:createShareLink", {})
    assert context.browser is not None
    holder = await context.browser.new_context(java_script_enabled=scripts)
    holder.set_default_timeout(PATIENCE_MILLISECONDS)
    page = await holder.new_page()
    await page.goto(BASE + link["path"])
    if not scripts:
        await page.get_by_label("The part of the link that follows #").fill(link["path"].partition("#")[2])
        await page.get_by_role("button", name="Show the page").click()
    opened = re.escape(
        f"{BASE}/console/shared/{hook}/pushAttempts"
    )  # a browser keeps the fragment in a redirection
    await expect(page).to_have_url(re.compile(f"{opened}$" if scripts else f"{opened}#.*$"))
    await expect(page.get_by_role("heading", name="Pushes of hook")).to_be_visible()
    await page.goto(f"{BASE}/console/{hook}")
    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    await holder.close()


@pytest.mark.parametrize("scripts", [True, False])
async def test_the_holder_of_a_link_resends_a_message_until_the_link_is_revoked(
    world: Guarded, context: BrowserContext, push_sink: PushSink, scripts: bool
) -> None:
    """With the endpoint's answers before them, and without a way to anything else."""
    hook = f"{world.project}/subscriptions/hook"
    push = {"pushEndpoint": f"{push_sink.url}/body/422/unknown-customer"}
    await world.ok("PUT", hook, {"topic": f"{world.project}/topics/orders", "pushConfig": push})
    published = await world.ok("POST", f"{world.project}/topics/orders:publish", {"messages": [{"data": "YQ=="}]})
    [message_id] = published["messageIds"]

    async def has_failed() -> bool:
        return bool((await world.ok("GET", f"{hook}:pushFailures")).get("pushFailures"))

    await eventually(has_failed, seconds=120)
    link = await world.ok("POST", f"{hook}:createShareLink", {"permissions": ["RESEND", "RECOVER"]})
    assert context.browser is not None
    holder = await context.browser.new_context(java_script_enabled=scripts)
    holder.set_default_timeout(PATIENCE_MILLISECONDS)
    await holder.add_init_script(CSP_EVENTS)
    page = await holder.new_page()
    await page.goto(BASE + link["path"])
    if not scripts:
        await page.get_by_label("The part of the link that follows #").fill(link["path"].partition("#")[2])
        await page.get_by_role("button", name="Show the page").click()
    await expect(page.locator("#failures tbody tr").first).to_contain_text("unknown-customer")
    targets = [await one.get_attribute("href") or "" for one in await page.locator("main a").all()]
    assert targets
    assert all(one.startswith((f"/console/shared/{hook}/pushAttempts", "#", "?")) for one in targets), targets
    await page.locator("#failures").get_by_role("link", name=f"Resend {message_id}").first.click()
    await page.get_by_role("button", name="Resend the messages").click()
    await expect(page.locator("#receipt")).to_contain_text(
        "Messages to hook: 1 waiting."
    )  # it is tried again anyway
    await page.get_by_role("link", name="Recover failed pushes").click()
    await page.get_by_label("Since").fill("1h")
    if not scripts:
        await page.get_by_role("button", name="Show what it would do").click()
    await expect(page.locator("#preview")).to_contain_text("There is nothing to do.")
    if scripts:
        assert await violations(page) == []
    await page.goto(f"{BASE}/console/shared/{hook}/pushAttempts:resend?messageIds={message_id}")
    await world.ok("DELETE", link["name"])
    await page.get_by_role("button", name="Resend the messages").click()
    await expect(page.locator("main")).to_contain_text("The link has expired or was revoked. Ask for a new one.")
    await holder.close()


async def test_no_page_of_the_sign_in_has_an_accessibility_problem_or_is_too_wide(
    world: Guarded, context: BrowserContext
) -> None:
    assert context.browser is not None
    relaxed = await context.browser.new_context(bypass_csp=True, viewport={"width": 360, "height": 740})
    page = await relaxed.new_page()
    for path in ("login", "link", "shared", "shared/x", "oidc/callback"):
        await page.goto(f"{BASE}/console/{path}")
        found = await Axe().run(page)
        assert [one["id"] for one in found.response["violations"]] == [], path
        width = await page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert width[0] <= width[1], (path, width)
    await page.goto(BASE + (await world.ok("POST", "signInLinks", {}))["path"])
    await expect(page.locator(".who")).to_be_visible()
    width = await page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1], width
    await relaxed.close()
