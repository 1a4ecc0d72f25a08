"""A real browser, and somebody who uses it: what they do is counted."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from threading import Lock
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, Page, Request, async_playwright, expect

from broker.cli.main import main
from tests.fixtures.broker import Rest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
OPTIONS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
# Tests in a browser take long; CI runs those that are marked for it as well.
IN_CHROMIUM = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]
CSP_EVENTS = """
    window.violations = [];
    addEventListener("securitypolicyviolation", (event) => window.violations.push(event.violatedDirective));
"""
PATIENCE_MILLISECONDS = 60_000  # for machines that are slow or busy
expect.set_options(timeout=PATIENCE_MILLISECONDS)
_one_command_at_a_time = Lock()  # they print to the one standard output


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        try:
            yield browser
        finally:
            await browser.close()


@dataclass
class Visitor:
    """Somebody in front of a page.  `actions`: clicks and searches; `requests`: pages that these loaded."""

    page: Page
    base: str
    actions: int = 0
    requests: int = 0
    has_scripts: bool = True
    errors: list[str] = field(default_factory=list)

    async def open(self, path: str) -> None:
        """Go to where a journey begins, which is no part of it."""
        await self.page.goto(self.base + path)
        self.actions = self.requests = 0

    async def click(self, target: Locator) -> None:
        self.actions += 1
        await target.click()
        await self.page.wait_for_load_state()

    async def search(self, text: str, *, with_keys: bool = False) -> None:
        """Type into the box that all pages have, and press Enter."""
        self.actions += 1
        if with_keys:
            await self.page.keyboard.press("/")
            await self.page.keyboard.type(text)
            await self.page.keyboard.press("Enter")
        else:
            box = self.page.get_by_role("searchbox")
            await box.fill(text)
            await box.press("Enter")

    def _requested(self, request: Request) -> None:
        self.requests += request.resource_type == "document"


@asynccontextmanager
async def visiting(browser: Browser, base: str, **options: Any) -> AsyncIterator[Visitor]:
    """Somebody at a broker; their browser must report neither an error nor a violation of the policy."""
    context = await browser.new_context(color_scheme="light", **options)
    await context.add_init_script(CSP_EVENTS)
    page = await context.new_page()
    visitor = Visitor(page, base)
    page.on("request", visitor._requested)
    page.on("pageerror", lambda error: visitor.errors.append(str(error)))
    page.on("console", lambda line: line.type == "error" and visitor.errors.append(line.text))
    yield visitor
    assert not visitor.errors, visitor.errors
    await context.close()


async def printed(rest: Rest, *arguments: str) -> Any:
    """Return what `broker ARGUMENTS --json` prints about the project of `rest`."""
    project = rest.project.removeprefix("projects/")
    whole = [*arguments, "--json", "--url", str(rest.client.base_url), "--project", project]

    def run() -> str:
        with _one_command_at_a_time, redirect_stdout(StringIO()) as out:
            assert main(whole) == 0, whole
        return out.getvalue()

    return json.loads(await asyncio.to_thread(run))
