"""What a page may cost a browser: bytes on the wire, and nodes of the document."""

import pytest
from playwright.async_api import Browser

from broker.console.routes import PAGES
from tests.console.chromium import IN_CHROMIUM, visiting
from tests.console.sample import Sample, fill_up
from tests.fixtures.broker import Rest
from tests.fixtures.push_sink import PushSink

pytestmark = [*IN_CHROMIUM, pytest.mark.ci]

FIRST_VISIT = 120_000  # bytes with the fonts, as they are sent
NODES = 3_000


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
