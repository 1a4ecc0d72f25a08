"""Every link of the console is followed: none is dead, and looking changes nothing."""

import json
from collections import deque
from collections.abc import AsyncIterator
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import pytest
from playwright.async_api import Browser
from sqlalchemy import text

from broker.console.routes import PAGES
from broker.model.names import leaf
from tests.console.chromium import IN_CHROMIUM, Visitor, visiting
from tests.console.sample import fill, until_settled
from tests.fixtures.access import Guarded, guarded
from tests.fixtures.broker import Rest
from tests.fixtures.push_sink import PushSink

pytestmark = [*IN_CHROMIUM, pytest.mark.ci, pytest.mark.timeout(600)]

LINKS = """
    [...document.querySelectorAll("a[href], form[action]")]
        .filter((each) => each.method !== "post")
        .map((each) => each.href || each.action)
"""
# Tables whose rows say what was delivered to whom, until when, and what has been asked for.
STATE = (
    "cursors",
    "delivery_attempts",
    "dead_letters",
    "snapshots",
    "operations",
    "schedules",
    "topics",
    "subscriptions",
    "policies",
    "service_account_keys",
)


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[Guarded]:
    async with guarded(database_url, console="auto", audit="changes") as world:
        world.client.headers.update(world.bearer())
        yield world


async def state_of(world: Guarded) -> dict[str, list[str]]:
    async with world.database.transaction() as connection:
        return {
            table: sorted(str(tuple(row)) for row in await connection.execute(text(f"SELECT * FROM {table}")))
            for table in STATE
        }


async def crawl(visitor: Visitor, start: str) -> dict[str, int]:
    """Follow every link from a page on; return the status of each page by its address."""
    seen, waiting = {start}, deque([start])
    found: dict[str, int] = {}
    while waiting:
        address = waiting.popleft()
        answer = await visitor.page.goto(address)
        assert answer is not None
        found[address] = answer.status
        assert await visitor.page.evaluate("window.violations") == [], address
        for link in await visitor.page.evaluate(LINKS):
            target = urldefrag(urljoin(address, link)).url
            assert urlsplit(target).netloc == urlsplit(start).netloc, (address, link)
            if target not in seen and not target.endswith("/console/open"):
                seen.add(target)
                waiting.append(target)
    return found


@pytest.mark.parametrize("role", ["roles/owner", "roles/viewer"])
async def test_no_link_is_dead_and_following_all_of_them_changes_nothing(
    world: Guarded, push_sink: PushSink, browser: Browser, role: str
) -> None:
    rest = Rest(world.client, world.project)
    sample = await fill(rest, push_sink)
    await until_settled(rest)
    base = str(world.client.base_url).rstrip("/")
    key = world.admin if role == "roles/owner" else await world.key(await world.account(role=role))
    before = await state_of(world)
    async with visiting(browser, base) as visitor:
        await visitor.page.goto(f"{base}/console/login?next=/console/{rest.project}")
        await visitor.page.get_by_label("Key file").fill(json.dumps(key))
        await visitor.page.get_by_role("button", name="Sign in").click()
        await visitor.page.wait_for_url(f"**/{leaf(rest.project)}")
        found = await crawl(visitor, f"{base}/console/{rest.project}")
        refused = {address.removeprefix(base) for address, status in found.items() if status != 200}
        visitor.errors[:] = [error for error in visitor.errors if "Failed to load resource" not in error]
    # Viewers may not look at the data of messages, to which findings lead.
    refused -= {address for address in refused if role == "roles/viewer" and "/messages/" in address}
    assert refused == (set() if role == "roles/owner" else {"/console/broker"})
    paths = {unquote(urlsplit(address).path) for address in found}
    unreached = {route.path for route in PAGES if sample.page(route.path) not in paths}
    unlinked = {"projects/{project}/search", "projects/{project}/topics/{topic}/messages/{message}"}
    if role == "roles/viewer":  # they see no list of messages
        unlinked |= {
            "projects/{project}/messages/{message}",
            "projects/{project}/subscriptions/{subscription}/deadLetters/compare",
        }
    assert unreached <= unlinked
    after = await state_of(world)
    for table in STATE:
        assert after[table] == before[table], table
