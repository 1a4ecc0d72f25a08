"""Every page is open while something fails: it says so, keeps its contents, and recovers by itself."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.async_api import Browser, BrowserContext, Locator, Page, expect

from broker.console.routes import PAGES
from broker.db.embedded.cluster import Cluster
from tests.console.chromium import IN_CHROMIUM, PATIENCE_MILLISECONDS
from tests.console.sample import Sample, fill
from tests.fixtures.broker import NO_TLS, BrokerProcess, Rest
from tests.fixtures.push_sink import PushSink

pytestmark = [*IN_CHROMIUM, pytest.mark.ci, pytest.mark.timeout(900)]

StartBroker = Callable[..., BrokerProcess]
OTHER_VERSION = "9.9.9"
WITHOUT_DATABASE = "roles/{predefined}"  # predefined roles are in none


class OpenPage:
    """A page of the console in a tab of its own.  `is_tail`: it follows messages, and says itself how that goes."""

    def __init__(self, path: str, page: Page) -> None:
        self.path = path
        self.page = page
        self.is_tail = path.endswith("/tail")
        self.notice = page.locator("[data-notice]")
        self.tail_state = page.locator(".tail [role=status]")

    async def says(self, sentence: str, *, in_tail: str) -> None:
        """Wait until it says so above its contents, which stay.  `in_tail`: what a tail says."""
        await self._has(self.tail_state if self.is_tail else self.notice, in_tail if self.is_tail else sentence)

    async def says_that_nothing_answers(self) -> None:
        if self.is_tail:
            await self._has(self.tail_state, "Reconnecting")
        else:
            await self._has(self.page.locator("[data-live]"), "No answer for")

    async def says_that_it_is_of_another_version(self, before: str) -> None:
        await self._has(self.notice, f"This page is from version {before}; the broker runs {OTHER_VERSION}. Reload")
        assert await version_of(self.page) == before, self.path

    async def has_recovered(self) -> None:
        await expect(self.notice, self.path).to_be_hidden()
        await expect(self.page.locator("[data-live]"), self.path).to_be_hidden()
        await expect(self.page.locator("html"), self.path).not_to_have_class(re.compile("stale"))
        await expect(self.page.locator("main[data-error]"), self.path).to_have_count(0)
        if self.is_tail:
            await self._has(self.tail_state, "Following")

    async def _has(self, locator: Locator, sentence: str) -> None:
        await expect(locator, self.path).to_contain_text(sentence, use_inner_text=True)
        assert not await self.page.locator("main[data-error]").count(), self.path


class Tabs:
    """Every page of the console, each in a tab of its own."""

    def __init__(self, context: BrowserContext, base: str, sample: Sample) -> None:
        self._context = context
        self._base = base
        self._sample = sample
        self.pages: list[OpenPage] = []

    async def open(self, path: str) -> OpenPage:
        one = OpenPage(path, await self._context.new_page())
        await one.page.goto(self._base + self._sample.asked_page(path))
        self.pages.append(one)
        return one

    async def have_recovered(self) -> None:
        for one in self.pages:
            await one.has_recovered()


@asynccontextmanager
async def all_open(browser: Browser, base: str, sample: Sample) -> AsyncIterator[Tabs]:
    context = await browser.new_context()
    context.set_default_timeout(PATIENCE_MILLISECONDS)
    tabs = Tabs(context, base, sample)
    for route in PAGES:
        await tabs.open(route.path)
    await tabs.have_recovered()
    yield tabs
    await context.close()


@asynccontextmanager
async def filled(url: str, push_sink: PushSink) -> AsyncIterator[Sample]:
    async with httpx.AsyncClient(base_url=url, timeout=60, verify=NO_TLS) as client:
        yield await fill(Rest(client, "projects/p"), push_sink)


async def version_of(page: Page) -> str:
    return str(await page.evaluate("document.documentElement.dataset.version"))


async def test_pages_say_that_the_broker_is_gone_and_go_on_with_the_next_one_unless_its_version_differs(
    start_broker: StartBroker, database_url: str, push_sink: PushSink, browser: Browser, tmp_path: Path
) -> None:
    """Those of two versions are not mixed: they say so, and have a link that reloads them."""
    broker = start_broker("--database-url", database_url, "--port", "0")
    again = ("--database-url", database_url, "--port", str(urlsplit(broker.url).port))
    (tmp_path / "sitecustomize.py").write_text(
        f"import broker.version\nbroker.version.version = lambda: {OTHER_VERSION!r}\n"
    )
    async with filled(broker.url, push_sink) as sample, all_open(browser, broker.url, sample) as tabs:
        await asyncio.to_thread(broker.kill)
        for one in tabs.pages:
            await one.says_that_nothing_answers()
        broker = await asyncio.to_thread(start_broker, *again)
        await tabs.have_recovered()
        before = await version_of(tabs.pages[0].page)
        assert await asyncio.to_thread(broker.stop) == 0
        await asyncio.to_thread(start_broker, *again, env={"PYTHONPATH": str(tmp_path)})
        for one in tabs.pages:
            await one.says_that_it_is_of_another_version(before)
        for one in tabs.pages:
            await one.notice.get_by_role("link", name="Reload").click()
            await expect(one.page.locator("footer")).to_contain_text(OTHER_VERSION)
        await tabs.have_recovered()


async def test_pages_say_that_the_database_is_away_and_recover(
    start_broker: StartBroker, data_dir: Path, push_sink: PushSink, browser: Browser
) -> None:
    cluster = Cluster(data_dir)
    await asyncio.to_thread(cluster.open)
    try:
        broker = start_broker("--database-url", cluster.url, "--port", "0")
        async with filled(broker.url, push_sink) as sample, all_open(browser, broker.url, sample) as tabs:
            await asyncio.to_thread(cluster.close)
            for one in tabs.pages:
                if one.path != WITHOUT_DATABASE:
                    await one.says("Not available", in_tail="Reconnecting")
            for path in ("projects/{project}/topics", "projects/{project}/topics/{topic}/tail"):
                late = await tabs.open(path)
                await expect(late.page.locator("h1")).to_have_text("Not available")
            await asyncio.to_thread(cluster.open)
            await tabs.have_recovered()
    finally:
        broker.stop()
        cluster.close()
