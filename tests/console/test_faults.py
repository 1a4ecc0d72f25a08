"""Each page stays open while something fails: it says so, keeps its contents, and recovers by itself."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.async_api import Browser, Locator, Page, expect

from broker.console.routes import PAGES
from broker.db.embedded.cluster import Cluster
from tests.console.chromium import IN_CHROMIUM
from tests.console.sample import Sample, fill
from tests.fixtures.access import guarded
from tests.fixtures.broker import NO_TLS, BrokerProcess, Rest
from tests.fixtures.push_sink import PushSink

pytestmark = [*IN_CHROMIUM, pytest.mark.ci, pytest.mark.timeout(1_200)]

StartBroker = Callable[..., BrokerProcess]
SOON = 240_000  # milliseconds: some thirty pages are open, each of which reads itself every five seconds
OTHER_VERSION = "9.9.9"
QUERIES = {"projects/{project}/search": "?q=orders"}  # without a text it shows nothing that could change


class OpenPage:
    """A page of the console in a tab of its own.  `is_tail`: it follows messages, and says how that goes itself."""

    def __init__(self, path: str, page: Page) -> None:
        self.path = path
        self.page = page
        self.is_tail = path.endswith("/tail")

    @property
    def notice(self) -> Locator:
        return self.page.locator("[data-notice]")

    async def says(self, locator: Locator, sentence: str) -> None:
        """Wait until it says so above its contents, which stay."""
        await expect(locator, self.path).to_contain_text(sentence, timeout=SOON, use_inner_text=True)
        await expect(self.page.locator("h1"), self.path).not_to_have_text("Not available")

    async def says_that_nothing_answers(self) -> None:
        if self.is_tail:
            await self.says(self.tail_state, "Reconnecting")
        else:
            await self.says(self.page.locator("[data-live]"), "No answer for")

    async def says_that_the_database_is_away(self) -> None:
        if self.is_tail:
            await self.says(self.tail_state, "Reconnecting")
        else:
            await self.says(self.notice, "Not available")

    async def says_that_nobody_is_signed_in(self) -> None:
        if self.is_tail:
            await self.says(self.tail_state, "Ended")
        else:
            await self.says(self.notice, "You are signed out")

    async def has_recovered(self) -> None:
        await expect(self.notice, self.path).to_be_hidden(timeout=SOON)
        await expect(self.page.locator("[data-live]"), self.path).to_be_hidden(timeout=SOON)
        await expect(self.page.locator("html"), self.path).not_to_have_class(re.compile("stale"))
        if self.is_tail:
            await self.says(self.tail_state, "Following")

    @property
    def tail_state(self) -> Locator:
        return self.page.locator(".tail [role=status]")


@asynccontextmanager
async def all_pages(browser: Browser, base: str, sample: Sample, cookie: str = "") -> AsyncIterator[list[OpenPage]]:
    """Every page of the console, each in a tab of its own."""
    context = await browser.new_context()
    context.set_default_timeout(SOON)
    if cookie:
        name, _, value = cookie.partition("=")
        await context.add_cookies([{"name": name, "value": value, "url": f"{base}/console"}])
    opened = []
    for route in PAGES:
        one = OpenPage(route.path, await context.new_page())
        await one.page.goto(base + sample.page(route.path) + QUERIES.get(route.path, ""))
        if one.is_tail:
            await one.says(one.tail_state, "Following")
        opened.append(one)
    yield opened
    await context.close()


async def all_have_recovered(pages: Sequence[OpenPage]) -> None:
    for one in pages:
        await one.has_recovered()


@asynccontextmanager
async def filled(url: str, push_sink: PushSink) -> AsyncIterator[Sample]:
    async with httpx.AsyncClient(base_url=url, timeout=60, verify=NO_TLS) as client:
        yield await fill(Rest(client, "projects/p"), push_sink)


async def test_pages_of_a_broker_that_is_killed_say_so_and_go_on_with_the_next_one(
    start_broker: StartBroker, database_url: str, push_sink: PushSink, browser: Browser
) -> None:
    broker = start_broker("--database-url", database_url, "--port", "0")
    port = str(urlsplit(broker.url).port)
    async with filled(broker.url, push_sink) as sample, all_pages(browser, broker.url, sample) as pages:
        await asyncio.to_thread(broker.kill)
        for one in pages:
            await one.says_that_nothing_answers()
        await asyncio.to_thread(start_broker, "--database-url", database_url, "--port", port)
        await all_have_recovered(pages)


async def test_pages_say_that_the_broker_has_another_version_and_do_not_mix_the_two(
    start_broker: StartBroker, database_url: str, push_sink: PushSink, browser: Browser, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        f"import broker.version\nbroker.version.version = lambda: {OTHER_VERSION!r}\n"
    )
    broker = start_broker("--database-url", database_url, "--port", "0")
    port = str(urlsplit(broker.url).port)
    async with filled(broker.url, push_sink) as sample, all_pages(browser, broker.url, sample) as pages:
        before = await pages[0].page.evaluate("document.documentElement.dataset.version")
        assert before != OTHER_VERSION
        assert await asyncio.to_thread(broker.stop) == 0
        again = ("--database-url", database_url, "--port", port)
        await asyncio.to_thread(start_broker, *again, env={"PYTHONPATH": str(tmp_path)})
        for one in pages:
            await one.says(
                one.notice, f"This page is from version {before}; the broker runs {OTHER_VERSION}. Reload"
            )
            assert await one.page.evaluate("document.documentElement.dataset.version") == before, one.path
        for one in pages:
            await one.notice.get_by_role("link", name="Reload").click()
            await expect(one.page.locator("footer")).to_contain_text(OTHER_VERSION)
        await all_have_recovered(pages)


async def test_pages_say_that_the_database_is_away_and_recover(
    start_broker: StartBroker, data_dir: Path, push_sink: PushSink, browser: Browser
) -> None:
    cluster = Cluster(data_dir)
    await asyncio.to_thread(cluster.open)
    try:
        broker = start_broker("--database-url", cluster.url, "--port", "0")
        async with filled(broker.url, push_sink) as sample, all_pages(browser, broker.url, sample) as pages:
            await asyncio.to_thread(cluster.close)
            for one in pages:
                if not one.path.startswith("roles/"):  # predefined roles are in no database
                    await one.says_that_the_database_is_away()
            late = OpenPage("projects/{project}/topics", await pages[0].page.context.new_page())
            await late.page.goto(broker.url + sample.page(late.path))
            await expect(late.page.locator("h1")).to_have_text("Not available")
            await asyncio.to_thread(cluster.open)
            await all_have_recovered([*pages, late])
            await expect(late.page.locator("h1")).to_have_text("Topics", timeout=SOON)
    finally:
        broker.stop()
        cluster.close()


async def test_pages_say_that_the_viewer_is_signed_out_once_the_key_is_deleted(
    database_url: str, push_sink: PushSink, browser: Browser
) -> None:
    async with guarded(database_url, console="auto") as world:
        base = str(world.client.base_url).rstrip("/")
        key = await world.key(await world.account("viewer", role="roles/owner"))
        async with httpx.AsyncClient(base_url=base, headers=world.bearer(), timeout=60) as client:
            sample = await fill(Rest(client, world.project), push_sink)
        answer = await world.client.post("/console/login", data={"credential": json.dumps(key)})
        cookie = answer.headers["set-cookie"].partition(";")[0]
        async with all_pages(browser, base, sample, cookie) as pages:
            await world.ok("DELETE", key["name"])
            for one in pages:
                await one.says_that_nobody_is_signed_in()
            [topics] = [one for one in pages if one.path == "projects/{project}/topics"]
            address = topics.page.url
            await topics.notice.get_by_role("link", name="Sign in again").click()
            await topics.page.locator("[name=credential]").fill(json.dumps(world.admin))
            await topics.page.get_by_role("button", name="Sign in", exact=True).click()
            await topics.page.wait_for_url(address)
            for one in pages:
                if one.is_tail:
                    await expect(one.tail_state.get_by_role("link", name="Sign in again")).to_be_visible()
                    await one.page.reload()
            await all_have_recovered(pages)  # the cookie is that of all tabs
