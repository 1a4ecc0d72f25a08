"""Each page stays open while something fails: it says so, keeps its contents, and recovers by itself."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.async_api import Browser, Page, expect

from broker.console.routes import PAGES
from broker.db.embedded.cluster import Cluster
from tests.console.chromium import IN_CHROMIUM
from tests.console.sample import Sample, fill
from tests.fixtures.access import guarded
from tests.fixtures.broker import NO_TLS, BrokerProcess, Rest
from tests.fixtures.push_sink import PushSink

pytestmark = [*IN_CHROMIUM, pytest.mark.slow, pytest.mark.ci, pytest.mark.timeout(600)]

StartBroker = Callable[..., BrokerProcess]
SOON = 120_000  # milliseconds
OTHER_VERSION = "9.9.9"


@asynccontextmanager
async def all_pages(browser: Browser, base: str, sample: Sample, cookie: str = "") -> AsyncIterator[Sequence[Page]]:
    """Every page of the console, each in a tab of its own."""
    context = await browser.new_context()
    if cookie:
        name, _, value = cookie.partition("=")
        await context.add_cookies([{"name": name, "value": value, "url": f"{base}/console"}])
    opened = []
    for route in PAGES:
        page = await context.new_page()
        await page.goto(base + sample.page(route.path))
        opened.append(page)
    yield opened
    await context.close()


async def all_say(pages: Sequence[Page], sentence: str) -> None:
    """Wait until each page says it above its contents, which stay."""
    for page in pages:
        await expect(page.locator("[data-notice]"), page.url).to_contain_text(sentence, timeout=SOON)
        await expect(page.locator("h1")).not_to_have_text("Not available")


async def all_have_recovered(pages: Sequence[Page]) -> None:
    for page in pages:
        await expect(page.locator("[data-notice]"), page.url).to_be_hidden(timeout=SOON)
        await expect(page.locator("[data-live]"), page.url).to_be_hidden(timeout=SOON)
        assert not await page.evaluate("document.documentElement.classList.contains('stale')")


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
        broker.kill()
        for page in pages:
            await expect(page.locator("[data-live]"), page.url).to_contain_text("No answer for", timeout=SOON)
            await expect(page.locator("h1")).to_be_visible()
        start_broker("--database-url", database_url, "--port", port)
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
        versions = {await page.evaluate("document.documentElement.dataset.version") for page in pages}
        assert broker.stop() == 0
        start_broker("--database-url", database_url, "--port", port, env={"PYTHONPATH": str(tmp_path)})
        await all_say(pages, f"This page is from version {versions.pop()}; the broker runs {OTHER_VERSION}.")
        await pages[1].get_by_role("link", name="Reload").click()
        await expect(pages[1].locator("footer")).to_contain_text(OTHER_VERSION)
        await all_have_recovered(pages[1:2])


async def test_pages_say_that_the_database_is_away_and_recover(
    start_broker: StartBroker, data_dir: Path, push_sink: PushSink, browser: Browser
) -> None:
    cluster = Cluster(data_dir)
    cluster.open()
    try:
        broker = start_broker("--database-url", cluster.url, "--port", "0")
        async with filled(broker.url, push_sink) as sample, all_pages(browser, broker.url, sample) as pages:
            await asyncio.to_thread(cluster.close)
            # What is kept in memory is still shown: predefined roles, for instance.
            need_the_database = [page for page in pages if "/console/roles/" not in page.url]
            await all_say(need_the_database, "Not available")
            late = await pages[0].context.new_page()
            await late.goto(broker.url + sample.page("projects/{project}/topics"))
            await expect(late.locator("h1")).to_have_text("Not available")
            await asyncio.to_thread(cluster.open)
            await all_have_recovered(pages)
            await expect(late.locator("h1")).to_have_text("Topics", timeout=SOON)
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
            await all_say(pages, "You are signed out.")
            address = pages[3].url
            await pages[3].get_by_role("link", name="Sign in").click()
            await pages[3].get_by_label("Key file").fill(json.dumps(world.admin))
            await pages[3].get_by_role("button", name="Sign in").click()
            await pages[3].wait_for_url(address)
            await all_have_recovered(pages)  # the cookie is that of all tabs
