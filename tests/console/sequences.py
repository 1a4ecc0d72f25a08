"""`python -m tests.console.sequences DIRECTORY`: pictures of three jobs, step by step (`make sequences`).

Starts a broker of its own and does each job in a browser, as the documentation tells it (docs/console-jobs.md): the
redrive of 3,000 dead letters, the repair of a webhook, and a replay that is undone.  Writes WebP.
"""

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from playwright.async_api import Browser, Page, expect

from tests.console.chromium import chromium
from tests.console.dead_letters import make_dead_letters
from tests.console.pictures import VIEWER, running_broker, write_webp
from tests.fixtures.broker import Rest, eventually, message
from tests.fixtures.push_sink import PushSink

LETTERS, PAYMENTS = 3_000, 40
FAILURES = 12  # requests, after which the circuit breaker is open
_MOST_RELOADS = 120
_WINDOW = {"width": 1280, "height": 760}


@dataclass
class Camera:
    """Takes the pictures of one job, in the order of its steps."""

    page: Page
    converter: Page
    base: str
    directory: Path
    job: str
    taken: int = 0

    async def open(self, path: str) -> None:
        await self.page.goto(f"{self.base}/console/{path}", wait_until="load")

    async def press(self, role: str, name: str) -> None:
        """Press a link or a button, and wait for the page that it leads to."""
        await self.page.get_by_role(role, name=name).first.click()  # type: ignore[arg-type]
        await self.page.wait_for_load_state("load")

    async def wait_for(self, text: str) -> None:
        """Load the page again until its main part has a text, which the samples of lags bring about."""
        for _ in range(_MOST_RELOADS):
            if text in await self.page.locator("main").inner_text():
                return
            await asyncio.sleep(1)
            await self.page.reload(wait_until="load")
        raise TimeoutError(f"the page does not say {text!r}")

    async def take(self) -> None:
        self.taken += 1
        await write_webp(self.page, self.converter, self.directory / f"{self.job}-{self.taken}.webp")


async def redrive(rest: Rest, _: PushSink, camera: Camera) -> None:
    """From the overview to the operation that has redriven all dead letters of one cause."""
    orders = [message(f'{{"order": {n}, "amount": {19 + n % 80}}}') for n in range(LETTERS)]
    await make_dead_letters(rest, orders, subscription="billing", topic="orders", dead_letter_topic="orders-dead")
    await camera.open(rest.project)
    await camera.wait_for("3,000")
    await camera.take()
    await camera.open(f"{rest.subscription('billing')}/deadLetters")
    await camera.take()
    await camera.press("link", "Redrive dead letters")
    await camera.page.get_by_label("Messages a second").fill("500")
    await expect(camera.page.locator(".command")).to_contain_text("--rate 500")
    await camera.page.locator("#do").scroll_into_view_if_needed()
    await camera.take()
    await camera.page.locator("#do").click()
    await camera.page.wait_for_url("**/operations/*")
    await camera.take()
    operation = camera.page.url.partition("/console/")[2]
    await rest.ok("POST", f"{operation}:wait", {"timeout": "60s"})
    await camera.page.reload()
    await camera.take()


async def webhook(rest: Rest, sink: PushSink, camera: Camera) -> None:
    """An endpoint fails, is repaired and tested, and gets everything that has waited for it."""
    await sink.program("/hook", "/body/500/the-ledger-database-is-down")
    await rest.create_topic("payments")
    push = {"pushEndpoint": f"{sink.url}/hook"}
    await rest.create_subscription("ledger", topic="payments", pushConfig=push)
    await rest.publish(*(message(f'{{"payment": {number}}}') for number in range(PAYMENTS)), topic="payments")

    async def has_failed() -> bool:
        return len(await sink.requests("/hook")) >= FAILURES

    await eventually(has_failed, seconds=120)
    await camera.open(rest.project)
    await camera.wait_for("ledger")
    await camera.take()
    await camera.open(rest.subscription("ledger"))
    await camera.take()
    await camera.open(f"{rest.subscription('ledger')}/pushAttempts")
    await camera.take()
    await sink.program("/hook", "/status/204")
    await camera.open(f"{rest.subscription('ledger')}:testPush")
    await camera.page.locator("#do").click()
    await expect(camera.page.locator("#receipt")).to_contain_text("204")
    await camera.take()

    async def is_delivered() -> bool:
        return not (await rest.ok("GET", f"{rest.subscription('ledger')}/messages")).get("messages")

    await eventually(is_delivered, seconds=180)
    await camera.open(f"{rest.subscription('ledger')}/pushAttempts")
    await camera.wait_for("Delivered")
    await camera.take()


async def replay(rest: Rest, _: PushSink, camera: Camera) -> None:
    """A seek to an hour ago, with what it brings about, and its undoing."""
    await rest.create_topic("events")
    await rest.create_subscription("search-index", topic="events", retainAckedMessages=True)
    await rest.publish(*(f"event {number}" for number in range(250)), topic="events")
    await rest.drain("search-index")
    await camera.open(rest.subscription("search-index"))
    await camera.press("link", "Seek: replay or skip")
    await camera.page.get_by_label("To the time").fill("1h")
    await expect(camera.page.locator("#do")).to_contain_text("250")
    await camera.take()
    await camera.page.locator("#do").click()
    await expect(camera.page.locator("#receipt")).to_contain_text("250")
    await camera.take()
    await camera.press("link", "Undo")
    await camera.press("button", "Undo it")
    await expect(camera.page.locator("#receipt")).to_be_visible()
    await camera.take()


JOBS: Mapping[str, Callable[[Rest, PushSink, Camera], Awaitable[None]]] = {
    "redrive": redrive,
    "webhook": webhook,
    "replay": replay,
}


async def run(directory: Path, jobs: Sequence[str]) -> None:
    async with running_broker() as (client, sink), chromium() as browser:
        for job in jobs:
            rest = Rest(client, f"projects/{job}-shop")
            await JOBS[job](rest, sink, await _camera(browser, str(client.base_url).rstrip("/"), directory, job))


async def _camera(browser: Browser, base: str, directory: Path, job: str) -> Camera:
    page = await browser.new_page(**VIEWER, viewport=_WINDOW)  # type: ignore[arg-type]
    return Camera(page, await browser.new_page(), base, directory, job)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--only", action="append", choices=list(JOBS), default=[])
    chosen = parser.parse_args()
    chosen.directory.mkdir(parents=True, exist_ok=True)
    asyncio.run(run(chosen.directory, chosen.only or list(JOBS)))


if __name__ == "__main__":
    main()
