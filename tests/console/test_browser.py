"""Pages in a real browser: accessibility, the policy, and the keyboard."""

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, expect

from broker.console.routes import PAGES
from tests.console.chromium import CSP_EVENTS, IN_CHROMIUM
from tests.console.sample import HOSTILE, Sample
from tests.fixtures.broker import Rest

pytestmark = IN_CHROMIUM
OTHER_PAGES = ("", "help", "projects/{project}/topics/none", "projects/empty-project")
LOOKS = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": {"width": 360, "height": 740}, "has_touch": True},
    "forced colours": {"forced_colors": "active"},
}


def addresses(rest: Rest, sample: Sample) -> list[str]:
    base = str(rest.client.base_url).rstrip("/")
    return [base + sample.page(path) for path in [*(route.path for route in PAGES), *OTHER_PAGES]]


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("look", LOOKS)
async def test_no_page_has_an_accessibility_problem_or_breaks_the_policy(
    rest: Rest, sample: Sample, browser: Browser, look: str
) -> None:
    """Axe is injected, so its pages do without the policy; the others report each violation."""
    strict = await browser.new_context(**LOOKS[look])  # type: ignore[arg-type]
    await strict.add_init_script(CSP_EVENTS)
    page, errors = await strict.new_page(), list[str]()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("dialog", lambda dialog: errors.append(dialog.message))
    relaxed = await (await browser.new_context(bypass_csp=True, **LOOKS[look])).new_page()  # type: ignore[arg-type]
    for address in addresses(rest, sample):
        await page.goto(address)
        assert await page.evaluate("window.violations") == [], address
        width = await page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert width[0] <= width[1], (address, width)
        nodes = await page.evaluate("document.querySelectorAll('*').length")
        assert nodes <= 3_000, address
        await relaxed.goto(address)
        found = await Axe().run(relaxed)
        problems = [(one["id"], [node["html"] for node in one["nodes"]]) for one in found.response["violations"]]
        assert problems == [], address
    assert errors == []


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
    await expect(rows).to_have_count(2)
    await page.evaluate("window.untouched = true")
    await rest.publish("another", topic="orders")
    await expect(rows).to_have_count(3, timeout=30_000)
    assert await page.evaluate("window.untouched")


async def test_a_page_says_that_it_is_no_longer_read_anew(rest: Rest, sample: Sample, browser: Browser) -> None:
    page = await open_page(browser, rest, sample, "projects/{project}")
    await page.route("**/*", lambda route: route.abort())
    await expect(page.locator("[data-live]")).to_contain_text("No answer for", timeout=60_000)
    await page.unroute_all()
    await expect(page.locator("[data-live]")).to_be_hidden(timeout=30_000)


async def test_the_theme_that_is_chosen_is_kept(rest: Rest, sample: Sample, browser: Browser) -> None:
    page = await open_page(browser, rest, sample, "help")
    await page.keyboard.press("t")
    chosen = await page.evaluate("document.documentElement.dataset.theme")
    await page.reload()
    assert await page.evaluate("document.documentElement.dataset.theme") == chosen == "dark"


async def open_page(browser: Browser, rest: Rest, sample: Sample, path: str) -> Page:
    page = await (await browser.new_context(color_scheme="light")).new_page()
    await page.goto(str(rest.client.base_url).rstrip("/") + sample.page(path))
    return page
