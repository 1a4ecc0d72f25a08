"""What a page may cost a browser: bytes on the wire, nodes of the document, shifts of the layout, memory."""

import pytest
from playwright.async_api import Browser, CDPSession, expect

from broker.console.pages.tails import MOST_AT_ONCE, MOST_ROWS
from broker.console.routes import PAGES
from tests.console.chromium import IN_CHROMIUM, visiting
from tests.console.sample import Sample, fill_up
from tests.fixtures.broker import Rest
from tests.fixtures.push_sink import PushSink

pytestmark = [*IN_CHROMIUM, pytest.mark.ci]

FIRST_VISIT = 120_000  # bytes with the fonts, as they are sent
NODES = 3_000
TAILED = 20_000  # messages that a tail shows, as within an hour
HEAP, GROWTH = 30_000_000, 1_000_000  # bytes of a tail, after all of them, and since a tenth of them
NOTE_SHIFTS = """
    window.shifts = [];
    new PerformanceObserver((list) => {
        for (const each of list.getEntries()) {
            const moved = each.sources.map((one) => one.node?.outerHTML?.slice(0, 200));
            if (!each.hadRecentInput) window.shifts.push([each.value, ...moved]);
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
            await visitor.page.goto(visitor.base + sample.page(route.path))
            nodes = await visitor.page.evaluate("document.querySelectorAll('*').length")
            assert nodes <= NODES, (route.path, nodes)


@pytest.mark.timeout(900)
async def test_nothing_moves_while_a_page_is_loaded_and_read_anew(
    rest: Rest, push_sink: PushSink, browser: Browser
) -> None:
    sample = await fill_up(rest, push_sink)
    async with visiting(browser, str(rest.client.base_url).rstrip("/")) as visitor:
        await visitor.page.context.add_init_script(NOTE_SHIFTS)
        found = {}
        for route in PAGES:
            await visitor.page.goto(visitor.base + sample.page(route.path), wait_until="networkidle")
            as_of = visitor.page.locator(".asof time")
            if not await visitor.page.locator("[data-tail]").count():
                read = await as_of.get_attribute("datetime") or ""
                await expect(as_of).not_to_have_attribute("datetime", read, timeout=60_000)
            found[route.path] = await visitor.page.evaluate("window.shifts")
    assert {path: shifts for path, shifts in found.items() if shifts} == {}


@pytest.mark.timeout(1_800)
async def test_a_tail_needs_no_more_memory_after_an_hour(rest: Rest, browser: Browser) -> None:
    await rest.create_topic()
    async with visiting(browser, str(rest.client.base_url).rstrip("/")) as visitor:
        page = visitor.page
        await page.goto(f"{visitor.base}/console/{rest.topic()}/tail")
        await expect(page.locator(".tail [role=status]")).to_contain_text(
            "Following", timeout=60_000, use_inner_text=True
        )
        session = await page.context.new_cdp_session(page)
        first = page.locator("#tail tbody tr").first
        before = 0
        for number in range(TAILED // MOST_AT_ONCE):
            ids = await rest.publish(*(f"message {number}: {'x' * 200}" for _ in range(MOST_AT_ONCE)))
            await expect(first).to_contain_text(ids[-1], timeout=60_000)
            if number == TAILED // MOST_AT_ONCE // 10:
                before = await heap_of(session)
        after = await heap_of(session)
        assert await page.locator("#tail tbody tr").count() <= MOST_ROWS
        assert await page.evaluate("document.querySelectorAll('*').length") <= NODES
    assert after <= min(HEAP, before + GROWTH), (before, after)


async def heap_of(session: CDPSession) -> int:
    """Return the bytes that scripts hold, after a collection of garbage."""
    await session.send("HeapProfiler.collectGarbage")
    return int((await session.send("Runtime.getHeapUsage"))["usedSize"])
