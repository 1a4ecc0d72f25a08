"""What a page may cost a browser: bytes on the wire, nodes of the document, and shifts of the layout."""

import pytest
from playwright.async_api import Browser, expect

from broker.console.routes import PAGES
from tests.console.chromium import IN_CHROMIUM, visiting
from tests.console.sample import Sample, fill_up, until_settled
from tests.console.test_browser import OTHER_PAGES
from tests.fixtures.broker import Rest
from tests.fixtures.push_sink import PushSink

pytestmark = [*IN_CHROMIUM, pytest.mark.ci]

FIRST_VISIT = 120_000  # bytes with the fonts, as they are sent
NODES = 3_000
VIEWPORTS = {"desk": {"width": 1280, "height": 800}, "phone": {"width": 360, "height": 740}}
SLOW_NETWORK = {"offline": False, "latency": 50, "downloadThroughput": 1_000_000, "uploadThroughput": 1_000_000}
DRAWN = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
NOTE_SHIFTS = """
    window.shifts = [];
    new PerformanceObserver((list) => {
        for (const each of list.getEntries()) {
            const moved = each.sources.map((one) => (one.node?.outerHTML ?? one.node?.data ?? "").slice(0, 100));
            if (!each.hadRecentInput) window.shifts.push([each.value, Math.round(each.startTime), ...moved]);
        }
    }).observe({ type: "layout-shift", buffered: true });
"""


async def test_a_first_visit_fits_its_budget_and_later_ones_take_the_page_alone(
    rest: Rest, sample: Sample, browser: Browser
) -> None:
    base = str(rest.client.base_url).rstrip("/")
    async with visiting(browser, base) as visitor:
        session = await visitor.page.context.new_cdp_session(visitor.page)
        await session.send("Network.enable")
        sizes, kinds, addresses = dict[str, int](), dict[str, str](), list[str]()

        def answered(said: dict[str, str]) -> None:
            kinds[said["requestId"]] = said["type"]

        def loaded(said: dict[str, str]) -> None:
            sizes[said["requestId"]] = int(said["encodedDataLength"])

        session.on("Network.responseReceived", answered)
        session.on("Network.loadingFinished", loaded)
        visitor.page.on("request", lambda request: addresses.append(request.url))
        await visitor.page.goto(base + sample.page("projects/{project}"), wait_until="networkidle")
        assert 0 < sum(sizes.values()) <= FIRST_VISIT, sizes
        assert {"Document", "Stylesheet", "Script", "Font"} <= set(kinds.values())
        sizes.clear()
        await visitor.page.goto(base + sample.page("projects/{project}/topics"), wait_until="networkidle")
        assert {kinds[one] for one, size in sizes.items() if size} == {"Document"}
        assert {address.startswith(base) for address in addresses} == {True}


async def test_no_page_has_more_nodes_than_a_browser_draws_at_once(
    rest: Rest, push_sink: PushSink, browser: Browser
) -> None:
    sample = await fill_up(rest, push_sink)
    async with visiting(browser, str(rest.client.base_url).rstrip("/")) as visitor:
        for route in PAGES:
            await visitor.page.goto(visitor.base + sample.asked_page(route.path))
            nodes = await visitor.page.evaluate("document.querySelectorAll('*').length")
            assert nodes <= NODES, (route.path, nodes)


@pytest.mark.parametrize("look", VIEWPORTS)
@pytest.mark.timeout(900)
async def test_nothing_moves_while_a_page_is_loaded(
    rest: Rest, sample: Sample, browser: Browser, look: str
) -> None:
    """On a slow network and with an empty cache, where fonts and scripts come late."""
    await until_settled(rest)
    moved = list[str]()
    for path in [*(route.path for route in PAGES), *OTHER_PAGES]:
        context = await browser.new_context(viewport=VIEWPORTS[look])  # type: ignore[arg-type]
        await context.add_init_script(NOTE_SHIFTS)
        page = await context.new_page()
        session = await context.new_cdp_session(page)
        await session.send("Network.enable")
        await session.send("Network.emulateNetworkConditions", SLOW_NETWORK)
        await page.goto(str(rest.client.base_url).rstrip("/") + sample.asked_page(path))
        if path.endswith("/tail"):
            following = page.locator(".tail [role=status]")
            await expect(following).to_contain_text("Following", use_inner_text=True)
        else:
            await page.wait_for_load_state("networkidle")
        await page.evaluate(DRAWN)
        moved += [f"{path}: {shift}" for shift in await page.evaluate("window.shifts")]
        await context.close()
    assert not moved, "\n".join(moved)
