"""What the programs that take pictures share: a broker of their own with an endpoint, and WebP files."""

import asyncio
import tempfile
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
from playwright.async_api import Page

from tests.fixtures.broker import NO_TLS, BrokerProcess
from tests.fixtures.push_sink import PushSink, running_sink

VIEWER: Mapping[str, str] = {"timezone_id": "Europe/Berlin", "locale": "en-GB"}
_TO_WEBP = """
    async (png) => {
        const bitmap = await createImageBitmap(await (await fetch("data:image/png;base64," + png)).blob());
        const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
        canvas.getContext("2d").drawImage(bitmap, 0, 0);
        const blob = await canvas.convertToBlob({ type: "image/webp", quality: 0.8 });
        return [...new Uint8Array(await blob.arrayBuffer())];
    }
"""


@asynccontextmanager
async def running_broker() -> AsyncIterator[tuple[httpx.AsyncClient, PushSink]]:
    """A broker with an empty data directory, and an endpoint that it may push to, within the block."""
    with tempfile.TemporaryDirectory() as directory, running_sink(Path(directory)) as sink:
        data, options = str(Path(directory) / "data"), ("--audit", "changes", "--push-private-addresses", "allow")
        broker = BrokerProcess("--data-dir", data, "--port", "0", *options).wait_until_ready()
        try:
            async with httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS) as client:
                yield client, sink
        finally:
            broker.stop()


async def write_webp(page: Page, converter: Page, path: Path) -> None:
    """Write what the window of a page shows.  `converter`: another page, whose policy lets it read the picture."""
    png = await page.screenshot(animations="disabled")
    webp = await converter.evaluate(_TO_WEBP, b64encode(png).decode())
    await asyncio.to_thread(path.write_bytes, bytes(webp))
