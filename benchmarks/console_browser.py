"""How long pages of the console take in Chromium, on a processor that is slowed down to a quarter.

LCP is the time until the largest part of a page is drawn, INP that from a key to the picture that shows its effect.
https://web.dev/articles/vitals
"""

import asyncio
import shutil
from collections.abc import Mapping, Sequence

from playwright.async_api import Browser, Page, async_playwright

from benchmarks.bench import say
from benchmarks.latency import percentile
from benchmarks.report import Row
from benchmarks.servers import Server

_SLOWED = 4
_VISITS = 5
_KEYS = "jjkk"  # each moves the focus to another row
_LCP_MS, _INP_MS = 500.0, 100.0  # marks
_OPTIONS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
_OBSERVE = """
    window.vitals = { lcp: 0, inp: 0 };
    new PerformanceObserver((list) => {
        for (const each of list.getEntries()) window.vitals.lcp = each.startTime;
    }).observe({ type: "largest-contentful-paint", buffered: true });
    new PerformanceObserver((list) => {
        for (const each of list.getEntries()) {
            if (each.interactionId) window.vitals.inp = Math.max(window.vitals.inp, each.duration);
        }
    }).observe({ type: "event", buffered: true, durationThreshold: 16 });
"""


def browser_rows(server: Server, paths: Mapping[str, str]) -> Sequence[Row]:
    """Visits each page in Chromium; no rows where it is not installed."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        say("pages in Chromium: it is not installed")
        return []
    return asyncio.run(_visit_all(program, f"http://{server.host}:{server.port}", paths))


async def _visit_all(program: str, base: str, paths: Mapping[str, str]) -> Sequence[Row]:
    rows: list[Row] = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=_OPTIONS)
        for name, path in paths.items():
            visits = [await _visit(browser, base + path) for _ in range(_VISITS)]
            for measure, most, index in (("LCP", _LCP_MS, 0), ("INP", _INP_MS, 1)):
                row = Row(measure=f"page: {name}, {measure}", unit="ms", mark=1.0, lower_is_better=True)
                row.ours = percentile([visit[index] for visit in visits], 50)
                row.ratio = None if row.ours is None else row.ours / most
                row.note = f"median of {_VISITS} visits with an empty cache, CPU slowed {_SLOWED}x; to {most:g} ms"
                rows.append(row)
                say(f"{row.measure}: {row.ours:.0f} ms")
        await browser.close()
    return rows


async def _visit(browser: Browser, address: str) -> tuple[float, float]:
    """Returns the LCP and the INP of a visit, in milliseconds."""
    context = await browser.new_context()
    try:
        page = await context.new_page()
        await page.add_init_script(_OBSERVE)
        session = await context.new_cdp_session(page)
        await session.send("Emulation.setCPUThrottlingRate", {"rate": _SLOWED})
        await page.goto(address, wait_until="networkidle", timeout=60_000)
        await _drawn(page)
        lcp = float(await page.evaluate("window.vitals.lcp"))  # the first key ends it
        for key in _KEYS:
            await page.keyboard.press(key)
            await _drawn(page)
        return lcp, float(await page.evaluate("window.vitals.inp"))
    finally:
        await context.close()


async def _drawn(page: Page) -> None:
    """Waits until the next two pictures are drawn."""
    await page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
