"""Pages in a real browser: accessibility, the policy, and the keyboard."""

import asyncio
import json
from collections.abc import Callable
from urllib.parse import quote

import httpx
import pytest
from playwright.async_api import Browser, Page, Route, expect

from broker.console.pages.tails import MOST_ROWS
from broker.console.routes import PAGES
from tests.console.chromium import IN_CHROMIUM
from tests.console.sample import HOSTILE, Sample
from tests.fixtures.access import guarded
from tests.fixtures.broker import BrokerProcess, Rest, message

pytestmark = [*IN_CHROMIUM, pytest.mark.ci]
SEEM = """(state) => {
    Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
}"""
OTHER_PAGES = ("", "help", "projects/{project}/topics/none", "projects/empty-project")


def addresses(rest: Rest, sample: Sample) -> list[str]:
    base = str(rest.client.base_url).rstrip("/")
    pages = [sample.asked_page(route.path) for route in PAGES]
    return [base + path for path in [*pages, *(sample.page(path) for path in OTHER_PAGES)]]


async def test_pages_can_be_read_without_scripts(rest: Rest, sample: Sample, browser: Browser) -> None:
    context = await browser.new_context(java_script_enabled=False)
    page = await context.new_page()
    for address in addresses(rest, sample):
        await page.goto(address)
        await expect(page.locator("h1")).to_be_visible()


async def test_a_message_is_found_and_its_deliveries_are_shown_with_the_keyboard_alone(
    rest: Rest, sample: Sample, browser: Browser
) -> None:
    page = await open_page(browser, rest, sample, "projects/{project}")
    await page.keyboard.press("/")
    await page.keyboard.type(sample.message_id)
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/messages/*")
    table = page.get_by_role("table", name="The state of this message for each subscription")
    reported = await rest.ok("GET", f"{rest.project}/messages/{sample.message_id}")
    for report in reported["subscriptions"]:
        row = table.get_by_role("row").filter(
            has=page.get_by_role("link", name=report["subscription"].split("/")[-1])
        )
        await expect(row).to_be_visible()
    body = page.locator("pre.data")
    await expect(body).to_contain_text(HOSTILE.split("\u202e")[0])


async def test_rows_are_reached_with_the_keyboard(rest: Rest, sample: Sample, browser: Browser) -> None:
    page = await open_page(browser, rest, sample, "projects/{project}/topics")
    await page.keyboard.press("j")
    await page.keyboard.press("j")
    await expect(page.get_by_role("link", name="orders")).to_be_focused()
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/topics/orders")
    await page.keyboard.press("g")
    await page.keyboard.press("s")
    await page.wait_for_url("**/subscriptions")


async def test_figures_change_without_a_reload(rest: Rest, sample: Sample, browser: Browser) -> None:
    page = await open_page(browser, rest, sample, "projects/{project}/topics/{topic}")
    rows = page.locator("#newest tbody tr")
    await expect(rows).to_have_count(3)
    await page.evaluate("window.untouched = true")
    await rest.publish("another", topic="orders")
    await expect(rows).to_have_count(4, timeout=30_000)
    assert await page.evaluate("window.untouched")


async def test_a_tail_shows_what_is_published_as_text_and_keeps_a_bounded_number_of_rows(
    rest: Rest, sample: Sample, browser: Browser
) -> None:
    page = await open_page(browser, rest, sample, "projects/{project}/topics/{topic}/tail")
    await is_said(page, "Following")
    await rest.publish(message(HOSTILE, {"<b>": HOSTILE}), topic="orders")
    first = page.locator("#tail tbody tr").first
    await expect(first).to_contain_text("<b>=<script>alert('x')</script>")
    assert await page.locator("#tail script, #tail b").count() == 0
    count = MOST_ROWS + 30
    for _ in range(3):
        await rest.publish(*(str(n) for n in range(count // 3)), topic="orders")
    last = await rest.publish("the last", topic="orders")
    await expect(first).to_contain_text(last[0])
    assert await page.locator("#tail tbody tr").count() <= MOST_ROWS
    said = page.locator("[data-count]")
    while "keeps the newest" not in await said.inner_text():  # those of one reading that are too many are left out
        await rest.publish(*(str(n) for n in range(20)), topic="orders")
        await expect(first).to_contain_text("19")
    await expect(said).to_contain_text(f"keeps the newest {MOST_ROWS} rows")
    assert await page.evaluate("document.querySelectorAll('*').length") <= 3_000


async def test_a_tail_that_is_paused_goes_on_where_it_was(rest: Rest, sample: Sample, browser: Browser) -> None:
    page = await open_page(browser, rest, sample, "projects/{project}/topics/{topic}/tail")
    await is_said(page, "Following")
    [seen] = await rest.publish("seen", topic="orders")
    first = page.locator("#tail tbody tr").first
    await expect(first).to_contain_text(seen)
    await page.keyboard.press("r")
    await is_said(page, "Paused")
    assert page.url.endswith("?paused=true")
    [meanwhile] = await rest.publish("meanwhile", topic="orders")
    await page.reload()
    await is_said(page, "Paused")
    await page.get_by_role("button", name="Resume").click()
    [later] = await rest.publish("later", topic="orders")
    await expect(first).to_contain_text(later)
    ids = await page.locator("#tail tbody tr td:first-child").all_text_contents()
    assert ids[:3] == [later, meanwhile, seen]
    assert len(set(ids)) == len(ids)


async def test_rows_that_are_read_do_not_move(rest: Rest, sample: Sample, browser: Browser) -> None:
    page = await open_page(browser, rest, sample, "projects/{project}/topics/{topic}/tail")
    await is_said(page, "Following")
    first = page.locator("#tail tbody tr").first
    await first.hover()
    before = await first.text_content()
    [new] = await rest.publish("new", topic="orders")
    show = page.get_by_role("button", name="Show 1 new message")
    await expect(show).to_be_visible()
    assert await first.text_content() == before
    await show.click()
    await expect(first).to_contain_text(new)


async def test_a_tail_says_that_its_connection_is_lost_and_goes_on(
    start_broker: Callable[..., BrokerProcess], database_url: str, browser: Browser
) -> None:
    broker = start_broker("--database-url", database_url, "--port", "0")
    port = broker.url.rpartition(":")[2]
    async with httpx.AsyncClient(base_url=broker.url, timeout=60) as client:
        rest = Rest(client, "projects/p")
        await rest.create_topic(messageRetentionDuration="3600s")
        page = await (await browser.new_context()).new_page()
        await page.goto(f"{broker.url}/console/{rest.topic()}/tail")
        await is_said(page, "Following")
        [first] = await rest.publish("before")
        await expect(page.locator("#tail tbody tr").first).to_contain_text(first)
    await asyncio.to_thread(broker.stop)
    await is_said(page, "Reconnecting")
    again = start_broker("--database-url", database_url, "--port", port)
    async with httpx.AsyncClient(base_url=again.url, timeout=60) as client:
        [second] = await Rest(client, "projects/p").publish("while the page was away")
        await is_said(page, "Following")
        await is_said(page, "Connected again after")
        await expect(page.locator("#tail tbody tr").first).to_contain_text(second)


async def test_a_tail_ends_with_the_session(database_url: str, browser: Browser) -> None:
    async with guarded(database_url, console="auto") as world:
        topic = f"{world.project}/topics/orders"
        await world.ok("PUT", topic, {})
        key = await world.key(await world.account("viewer", role="roles/pubsub.editor"))
        page = await (await browser.new_context()).new_page()
        base = str(world.client.base_url).rstrip("/")
        await page.goto(f"{base}/console/login?next={quote(f'/console/{topic}/tail')}")
        await page.locator("[name=credential]").fill(json.dumps(key))
        await page.get_by_role("button", name="Sign in").click()
        await is_said(page, "Following")
        await world.ok("DELETE", key["name"])
        await is_said(page, "Ended")
        await page.get_by_role("link", name="Sign in again").click()
        await page.wait_for_url("**/console/login?**")


async def test_three_tabs_follow_and_a_fourth_says_that_it_reads_now_and_then(
    rest: Rest, sample: Sample, browser: Browser
) -> None:
    """With eight tabs that look at a tail, a ninth page is loaded: browsers open six connections."""
    context = await browser.new_context()
    address = str(rest.client.base_url).rstrip("/") + sample.page("projects/{project}/topics/{topic}/tail")
    tabs = []
    for number in range(8):
        tabs.append(await context.new_page())
        await tabs[-1].goto(address)
        await is_said(tabs[-1], "Following" if number < 3 else "Read every 5 s")
    ninth = await context.new_page()
    await ninth.goto(address.removesuffix("/tail"))
    await expect(ninth.locator("h1")).to_contain_text("orders")
    [new] = await rest.publish("for all", topic="orders")
    for tab in tabs:
        await expect(tab.locator("#tail tbody tr").first).to_contain_text(new)
    await tabs[0].close()
    await is_said(tabs[3], "Following")


async def test_a_tail_can_be_read_without_scripts(rest: Rest, sample: Sample, browser: Browser) -> None:
    page = await (await browser.new_context(java_script_enabled=False)).new_page()
    address = str(rest.client.base_url).rstrip("/") + sample.page("projects/{project}/topics/{topic}/tail")
    await page.goto(address)
    [new] = await rest.publish("new", topic="orders")
    await page.get_by_role("link", name="Refresh").click()
    await expect(page.locator("#tail tbody tr").first).to_contain_text(new)
    await expect(page.get_by_role("button", name="Pause")).to_be_hidden()


async def test_a_search_goes_on_until_something_is_found(rest: Rest, browser: Browser) -> None:
    """What is sought is behind more messages than one call reads."""
    await rest.create_topic(messageRetentionDuration="3600s")
    [sought] = await rest.publish(message("needle", {"env": "prod"}))
    for _ in range(21):
        await rest.publish(*["hay"] * 1_000)
    page = await (await browser.new_context()).new_page()
    await page.goto(f"{str(rest.client.base_url).rstrip('/')}/console/{rest.topic()}/messages?contains=needle")
    await expect(page.locator("#messages tbody tr").first).to_contain_text(sought)
    assert "pageToken=" in page.url
    await page.reload()
    await expect(page.locator("#messages tbody tr").first).to_contain_text(sought)


@pytest.mark.parametrize("path", ["projects/{project}", "projects/{project}/topics/{topic}/tail"])
async def test_a_hidden_page_asks_for_nothing_until_it_is_visible_again(
    rest: Rest, sample: Sample, browser: Browser, path: str
) -> None:
    """Tabs of a browser without a window are never hidden, so the page is told that it is."""
    page, asked = await (await browser.new_context()).new_page(), list[str]()
    await page.clock.install()
    await page.goto(str(rest.client.base_url).rstrip("/") + sample.page(path))
    if path.endswith("/tail"):
        await is_said(page, "Following")
        async with page.expect_event("requestfailed", lambda request: "/tail/events" in request.url):
            await page.evaluate(SEEM, "hidden")
    else:
        await page.evaluate(SEEM, "hidden")
    page.on("request", lambda request: asked.append(request.url))
    await page.clock.run_for(60_000)  # what a page does by itself it does within this
    assert asked == []
    async with page.expect_request(lambda request: request.url.startswith(page.url)):
        await page.evaluate(SEEM, "visible")


@pytest.mark.parametrize("fails", [True, False])
async def test_a_page_says_that_it_is_no_longer_read_anew(
    rest: Rest, sample: Sample, browser: Browser, fails: bool
) -> None:
    """Its request fails, or is never answered."""
    page, asked = await open_page(browser, rest, sample, "projects/{project}"), list[Route]()

    async def leave(route: Route) -> None:
        asked.append(route)
        if fails:
            await route.abort()

    await page.route(page.url, leave)
    await expect(page.locator("[data-live]")).to_contain_text("No answer for")
    assert fails or len(asked) == 1  # it does not ask again before it gives up
    await page.unroute_all()
    await expect(page.locator("[data-live]")).to_be_hidden()


async def test_the_theme_that_is_chosen_is_kept(rest: Rest, sample: Sample, browser: Browser) -> None:
    page = await open_page(browser, rest, sample, "help")
    await page.keyboard.press("t")
    chosen = await page.evaluate("document.documentElement.dataset.theme")
    await page.reload()
    assert await page.evaluate("document.documentElement.dataset.theme") == chosen == "dark"


async def is_said(page: Page, text: str) -> None:
    """Wait until the page says so about its tail."""
    await expect(page.locator(".tail [role=status]")).to_contain_text(text, use_inner_text=True)


async def open_page(browser: Browser, rest: Rest, sample: Sample, path: str) -> Page:
    page = await (await browser.new_context(color_scheme="light")).new_page()
    await page.goto(str(rest.client.base_url).rstrip("/") + sample.page(path))
    return page
