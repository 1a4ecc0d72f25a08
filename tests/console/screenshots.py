"""`python -m tests.console.screenshots DIRECTORY`: pictures of every page of the console (`make screenshots`).

Starts a broker of its own with a shop that trades for some minutes, and takes each page in light, dark and on a
phone.  With --docs it also writes those that the documentation shows, as WebP; let the shop trade for 15 minutes
then (--seconds 900), so that their charts are full.
"""

import argparse
import asyncio
import tempfile
import time
from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
from playwright.async_api import Browser

from tests.console.chromium import chromium
from tests.console.shop import Shop
from tests.fixtures.broker import NO_TLS, BrokerProcess, Rest, repository
from tests.fixtures.push_sink import running_sink

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
_TO_WEBP = """
    async (png) => {
        const bitmap = await createImageBitmap(await (await fetch("data:image/png;base64," + png)).blob());
        const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
        canvas.getContext("2d").drawImage(bitmap, 0, 0);
        const blob = await canvas.convertToBlob({ type: "image/webp", quality: 0.8 });
        return [...new Uint8Array(await blob.arrayBuffer())];
    }
"""


async def pages_of(rest: Rest) -> Mapping[str, str]:
    """Return the address of each page by the name of its picture."""
    dead = await rest.ok("GET", f"{rest.subscription('orders-to-crm')}/deadLetters")
    newest = await rest.ok("GET", f"{rest.topic('orders')}/messages")
    operations = await rest.ok("GET", f"{rest.project}/operations?orderBy=createTime%20desc")
    message_id = (dead.get("deadLetters") or [{"sourceMessageId": newest["messages"][0]["messageId"]}])[0][
        "sourceMessageId"
    ]
    billing = f"{PROJECT}/subscriptions/payments-to-billing"
    return {
        "overview": f"{PROJECT}?range=15m",
        "topics": f"{PROJECT}/topics",
        "topic": f"{PROJECT}/topics/orders?range=15m",
        "topic-messages": f"{PROJECT}/topics/orders/messages",
        "topic-tail": f"{PROJECT}/topics/orders/tail",
        "message": f"{PROJECT}/messages/{message_id}",
        "subscriptions": f"{PROJECT}/subscriptions",
        "subscription-push": f"{billing}?range=15m",
        "subscription-pull": f"{PROJECT}/subscriptions/orders-to-packing?range=15m",
        "pushes": f"{PROJECT}/subscriptions/orders-to-crm/pushAttempts",
        "backlog": f"{PROJECT}/subscriptions/orders-to-packing/messages",
        "dead-letters-of-subscription": f"{PROJECT}/subscriptions/orders-to-invoices/deadLetters",
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
        context = await browser.new_context(timezone_id="Europe/Berlin", locale="en-GB", **LOOKS[look])
        page = await context.new_page()
        for name, path in pages.items():
            await page.goto(f"{base}/console/{path}", wait_until="load")
            whole = await page.evaluate("document.documentElement.scrollHeight")
            await page.set_viewport_size({**LOOKS[look]["viewport"], "height": whole})  # what sticks is at its end
            await page.screenshot(path=directory / f"{name}-{look}.png", animations="disabled")
            await page.set_viewport_size(LOOKS[look]["viewport"])
        await context.close()


async def take_for_docs(browser: Browser, base: str, pages: Mapping[str, str]) -> None:
    """Write what a window shows at first, without the rest of the page."""
    converter = await browser.new_page()
    for name, look in SHOWN:
        page = await browser.new_page(timezone_id="Europe/Berlin", locale="en-GB", **LOOKS[look])
        await page.goto(f"{base}/console/{pages[name]}", wait_until="load")
        png = await page.screenshot(animations="disabled")
        webp = await converter.evaluate(_TO_WEBP, b64encode(png).decode())
        await asyncio.to_thread((DOCS / f"{name}-{look}.webp").write_bytes, bytes(webp))
        await page.close()


async def run(
    directory: Path, only: Sequence[str], looks: Sequence[str], seconds: float, *, for_docs: bool
) -> None:
    with tempfile.TemporaryDirectory() as temporary, running_sink(Path(temporary)) as sink:
        data = str(Path(temporary) / "data")
        options = ("--audit", "changes", "--push-private-addresses", "allow")
        broker = BrokerProcess("--data-dir", data, "--port", "0", *options).wait_until_ready()
        try:
            async with httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS) as client:
                rest = Rest(client, PROJECT)
                shop = Shop(rest, sink)
                await live(shop, seconds)
                trading = asyncio.create_task(go_on(shop))
                pages = {name: path for name, path in (await pages_of(rest)).items() if not only or name in only}
                async with chromium() as browser:
                    if for_docs:
                        await take_for_docs(browser, broker.url, await pages_of(rest))
                    await take(browser, broker.url, pages, directory, looks)
                trading.cancel()
        finally:
            broker.stop()


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
