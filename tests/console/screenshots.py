"""`python -m tests.console.screenshots DIRECTORY`: pictures of every page of the console (`make screenshots`).

Starts a broker of its own with a shop that trades for some minutes, and takes each page in light, dark and on a
phone.  With --docs it also writes those that the documentation shows, as WebP; let the shop trade for 15 minutes
then (--seconds 900), so that their charts are full.
"""

import argparse
import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from playwright.async_api import Browser

from tests.console.chromium import chromium
from tests.console.pictures import VIEWER, running_broker, write_webp
from tests.console.shop import Shop
from tests.fixtures.broker import Rest, repository

PROJECT = "projects/shop"
LOOKS: Mapping[str, Mapping[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 800}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 800}},
    "phone": {"color_scheme": "light", "viewport": {"width": 360, "height": 740}, "has_touch": True},
}
TRADE_SECONDS = 150
DOCS = repository() / "docs/images/console"
SHOWN = (
    ("overview", "light"),
    ("overview", "dark"),
    ("overview", "phone"),
    ("topic", "light"),
    ("subscription-push", "light"),
    ("subscription-pull", "dark"),
    ("message", "light"),
    ("dead-letters", "light"),
    ("redrive", "light"),
    ("subscriptions", "phone"),
)


async def pages_of(rest: Rest) -> Mapping[str, str]:
    """Return the address of each page by the name of its picture."""
    dead = await rest.ok("GET", f"{rest.subscription('orders-to-crm')}/deadLetters")
    operations = await rest.ok("GET", f"{rest.project}/operations?orderBy=createTime%20desc")
    if letters := dead.get("deadLetters"):
        message_id = letters[0]["sourceMessageId"]
    else:
        message_id = (await rest.ok("GET", f"{rest.topic('orders')}/messages"))["messages"][0]["messageId"]
    billing = f"{PROJECT}/subscriptions/payments-to-billing"
    return {
        "overview": f"{PROJECT}?range=15m",
        "topics": f"{PROJECT}/topics",
        "topic": f"{PROJECT}/topics/orders?range=15m",
        "topic-messages": f"{PROJECT}/topics/orders/messages",
        "topic-tail": f"{PROJECT}/topics/orders/tail",
        "message": f"{PROJECT}/messages/{message_id}",
        "subscriptions": f"{PROJECT}/subscriptions",
        "subscription-tail": f"{PROJECT}/subscriptions/orders-to-packing/tail",
        "subscription-push": f"{billing}?range=15m",
        "subscription-pull": f"{PROJECT}/subscriptions/orders-to-packing?range=15m",
        "pushes": f"{PROJECT}/subscriptions/orders-to-crm/pushAttempts",
        "backlog": f"{PROJECT}/subscriptions/orders-to-packing/messages",
        "dead-letters-of-subscription": f"{PROJECT}/subscriptions/orders-to-invoices/deadLetters",
        "compare-dead-letters": f"{PROJECT}/subscriptions/orders-to-invoices/deadLetters/compare",
        "dead-letters": f"{PROJECT}/deadLetters",
        "operations": f"{PROJECT}/operations",
        "operation": operations["operations"][0]["name"],
        "schedules": f"{PROJECT}/schedules",
        "schedule": f"{PROJECT}/schedules/stock-count",
        "snapshots": f"{PROJECT}/snapshots",
        "snapshot": f"{PROJECT}/snapshots/before-migration",
        "schemas": f"{PROJECT}/schemas",
        "schema": f"{PROJECT}/schemas/Order",
        "activity": f"{PROJECT}/activity",
        "access": f"{PROJECT}/access?principal=group:support@shop.example&permission=pubsub.subscriptions.consume"
        "&resource=subscriptions/orders-to-warehouse",
        "service-accounts": f"{PROJECT}/serviceAccounts",
        "service-account": f"{PROJECT}/serviceAccounts/warehouse@shop.iam.broker.internal",
        "api-keys": f"{PROJECT}/apiKeys",
        "roles": f"{PROJECT}/roles",
        "role-of-project": f"{PROJECT}/roles/on_call",
        "role": "roles/pubsub.subscriber",
        "quotas": f"{PROJECT}/quotas",
        "search": f"{PROJECT}/search?q=orders",
        "seek": f"{PROJECT}/subscriptions/orders-to-warehouse:seek?time=2m&undoable=on",
        "redrive": f"{billing}:redrive?reason=push+503&maxMessagesPerSecond=50",
        "discard": f"{PROJECT}/subscriptions/orders-to-invoices:discard?reason=nack",
        "create-subscription": f"{PROJECT}:createSubscription",
        "publish": f"{PROJECT}/topics/orders:publish",
        "delete-topic": f"{PROJECT}/topics/orders:delete",
        "broker": "broker",
        "projects": "",
        "empty-project": "projects/new-project",
        "not-found": f"{PROJECT}/topics/oders",
        "help": "help",
    }


async def take(
    browser: Browser, base: str, pages: Mapping[str, str], directory: Path, looks: Sequence[str]
) -> None:
    for look in looks:
        context = await browser.new_context(**VIEWER, **LOOKS[look])
        page = await context.new_page()
        for name, path in pages.items():
            await page.goto(f"{base}/console/{path}", wait_until="load")
            whole = await page.evaluate("document.documentElement.scrollHeight")
            # A phone's navigation bar sticks to the end of the window: it must not cover the middle of the page.
            await page.set_viewport_size({**LOOKS[look]["viewport"], "height": whole})
            await page.screenshot(path=directory / f"{name}-{look}.png", animations="disabled")
            await page.set_viewport_size(LOOKS[look]["viewport"])
        await context.close()


async def take_for_docs(browser: Browser, base: str, pages: Mapping[str, str]) -> None:
    """Write what a window shows at first, without the rest of the page."""
    converter = await browser.new_page()
    for name, look in SHOWN:
        page = await browser.new_page(**VIEWER, **LOOKS[look])
        await page.goto(f"{base}/console/{pages[name]}", wait_until="load")
        await write_webp(page, converter, DOCS / f"{name}-{look}.webp")
        await page.close()


async def run(
    directory: Path, only: Sequence[str], looks: Sequence[str], seconds: float, *, for_docs: bool
) -> None:
    async with running_broker() as (client, sink):
        rest, base = Rest(client, PROJECT), str(client.base_url).rstrip("/")
        shop = Shop(rest, sink)
        await live(shop, seconds)
        trading = asyncio.create_task(go_on(shop))
        pages = await pages_of(rest)
        async with chromium() as browser:
            if for_docs:
                await take_for_docs(browser, base, pages)
            chosen = {name: path for name, path in pages.items() if not only or name in only}
            await take(browser, base, chosen, directory, looks)
        trading.cancel()


async def live(shop: Shop, seconds: float) -> None:
    """Trade for so many seconds: more, and then less, as in the course of a day."""
    await shop.open()
    began, releases = time.monotonic(), {"2.13.1": 0.2, "2.14.0": 0.6}
    while (elapsed := time.monotonic() - began) < seconds:
        await shop.trade(int(10 + 90 * min(elapsed, seconds - elapsed) / seconds))
        for release in [one for one, share in releases.items() if elapsed > share * seconds]:
            del releases[release]
            await shop.deploy(release)
        await asyncio.sleep(1)
    await shop.end_the_day()


async def go_on(shop: Shop) -> None:
    """Trade until cancelled, so that pages show consumers at work."""
    while True:
        await shop.trade(20)
        await asyncio.sleep(2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--only", action="append", default=[], metavar="PAGE")
    parser.add_argument("--look", action="append", choices=list(LOOKS), default=[])
    parser.add_argument("--seconds", type=float, default=TRADE_SECONDS, help="how long the shop trades")
    parser.add_argument("--docs", action="store_true", help="write the pictures of the documentation, too")
    chosen = parser.parse_args()
    for directory in (chosen.directory, DOCS):
        directory.mkdir(parents=True, exist_ok=True)
    looks = chosen.look or list(LOOKS)
    asyncio.run(run(chosen.directory, chosen.only, looks, chosen.seconds, for_docs=chosen.docs))


if __name__ == "__main__":
    main()
